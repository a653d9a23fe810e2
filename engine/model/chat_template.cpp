// SPDX-License-Identifier: MIT
#include "engine/model/chat_template.h"

#include "engine/error.h"

namespace kvlab {
namespace {

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kWhite = " \t\r\n\v\f";
    const size_t begin = text.find_first_not_of(kWhite);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kWhite) + 1 - begin);
}

// The system text that a ChatML template spells out whole, as Qwen 2's and SmolLM's do for
// conversations without one. A line break may be written as one or as \n.
std::string defaultSystem(std::string_view jinja) {
    constexpr std::string_view kBegin = "<|im_start|>system";
    constexpr std::string_view kEnd = "<|im_end|>";
    for (size_t at = jinja.find(kBegin); at != std::string_view::npos;
         at = jinja.find(kBegin, at + 1)) {
        std::string_view rest = jinja.substr(at + kBegin.size());
        if (rest.substr(0, 2) == "\\n") {
            rest.remove_prefix(2);
        } else if (rest.substr(0, 1) == "\n") {
            rest.remove_prefix(1);
        } else {
            continue;
        }
        // A quote or brace ends the literal, a backslash escapes something: not spelt out whole.
        const size_t end = rest.find_first_of("'\"{}\\<");
        if (end == std::string_view::npos || end == 0) continue;
        if (rest.substr(end, kEnd.size()) == kEnd) return std::string(rest.substr(0, end));
    }
    return {};
}

// Whether the expression that writes the user's turn ends it with the end token (other models with
// the marker <|user|> do not).
bool endsUserTurnWithEos(std::string_view jinja) {
    for (size_t at = jinja.find("<|user|>"); at != std::string_view::npos;
         at = jinja.find("<|user|>", at + 1)) {
        const std::string_view expression = jinja.substr(at, jinja.find("}}", at) - at);
        if (contains(expression, "eos_token") || contains(expression, "</s>")) return true;
    }
    return false;
}

}  // namespace

std::optional<ChatTemplate> recogniseChatTemplate(std::string_view jinja) {
    const auto has = [&](std::string_view marker) { return contains(jinja, marker); };
    ChatTemplate chat;
    chat.trims = has("| trim") || has("|trim") || has(".strip()");
    if (has("<|im_start|>") && has("<|im_end|>") && !has("<|im_sep|>")) {
        chat.format = ChatFormat::kChatMl;
        chat.default_system = defaultSystem(jinja);
        return chat;
    }
    if (has("<|start_header_id|>") && has("<|end_header_id|>") && has("<|eot_id|>")) {
        chat.format = ChatFormat::kLlama3;
        return chat;
    }
    if (has("[INST]") && has("[/INST]") && !has("[SYSTEM_PROMPT]")) {
        chat.format = has("<<SYS>>") ? ChatFormat::kLlama2 : ChatFormat::kMistral;
        chat.inst_begin = has("[INST] ") ? "[INST] " : "[INST]";
        chat.inst_end = has(" [/INST]") ? " [/INST]" : "[/INST]";
        return chat;
    }
    if (has("<|assistant|>") && !has("<|end|>") && endsUserTurnWithEos(jinja)) {
        chat.format = ChatFormat::kZephyr;
        return chat;
    }
    return std::nullopt;
}

std::vector<TextPart> renderChat(const ChatTemplate& chat,
                                 std::string_view eos_text,
                                 const std::optional<std::string>& system,
                                 std::string_view user) {
    std::vector<TextPart> parts;
    const auto markup = [&](std::string text) { parts.push_back({std::move(text), true}); };
    const auto said = [&](std::string_view text) {
        parts.push_back({std::string(chat.trims ? trimmed(text) : text), false});
    };
    switch (chat.format) {
        case ChatFormat::kChatMl:
            if (system || !chat.default_system.empty()) {
                markup("<|im_start|>system\n");
                said(system ? *system : chat.default_system);
                markup("<|im_end|>\n");
            }
            markup("<|im_start|>user\n");
            said(user);
            markup("<|im_end|>\n<|im_start|>assistant\n");
            break;
        case ChatFormat::kLlama3:
            if (system) {
                markup("<|start_header_id|>system<|end_header_id|>\n\n");
                said(*system);
                markup("<|eot_id|>");
            }
            markup("<|start_header_id|>user<|end_header_id|>\n\n");
            said(user);
            markup("<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
            break;
        case ChatFormat::kLlama2:
            markup(chat.inst_begin);
            if (system) {
                markup("<<SYS>>\n");
                said(*system);
                markup("\n<</SYS>>\n\n");
            }
            said(user);
            markup(chat.inst_end);
            break;
        case ChatFormat::kMistral:
            markup(chat.inst_begin);
            if (system) {
                said(*system);
                markup("\n\n");
            }
            said(user);
            markup(chat.inst_end);
            break;
        case ChatFormat::kZephyr: {
            const std::string turn_end = std::string(eos_text) + "\n";
            if (system) {
                markup("<|system|>\n");
                said(*system);
                markup(turn_end);
            }
            markup("<|user|>\n");
            said(user);
            markup(turn_end + "<|assistant|>\n");
            break;
        }
    }
    return parts;
}

ChatPrompt makeChatPrompt(const Tokenizer& tokenizer,
                          const std::optional<std::string>& system,
                          std::string_view user) {
    if (tokenizer.chatTemplate().empty()) {
        throw EngineError(ErrorKind::kBadArgument,
                          "the model's file has no chat template (tokenizer.chat_template); give "
                          "the prompt as plain text, or use an instruct model");
    }
    const std::optional<ChatTemplate> chat = recogniseChatTemplate(tokenizer.chatTemplate());
    if (!chat) {
        std::string warning =
            "the model's chat template is none of those supported (ChatML, Llama 2, Llama 3, "
            "Mistral, Zephyr); the prompt is used as plain text";
        if (system) warning += ", without the system text";
        return {{{std::string(user), false}}, std::move(warning)};
    }
    const std::string eos_text =
        tokenizer.eos().valid() ? tokenizer.rawPiece(tokenizer.eos()) : "</s>";
    return {renderChat(*chat, eos_text, system, user), {}};
}

}  // namespace kvlab
