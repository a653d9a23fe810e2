// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/tokenizer.h"

namespace kvlab {

// How an instruct model wants a conversation written. The file's template is a Jinja program
// (tokenizer.chat_template); it is not run. The common families are told by the markers that stand
// in it, and written here for one system and one user text.
enum class ChatFormat {
    kChatMl,   // <|im_start|>user\nTEXT<|im_end|>\n: Qwen 2, SmolLM
    kLlama3,   // <|start_header_id|>user<|end_header_id|>\n\nTEXT<|eot_id|>
    kLlama2,   // [INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\nTEXT [/INST]
    kMistral,  // [INST] TEXT [/INST], the system text before the user's
    kZephyr,   // <|user|>\nTEXT</s>\n: Zephyr, TinyLlama
};

struct ChatTemplate {
    ChatFormat format = ChatFormat::kChatMl;
    std::string
        default_system;  // what a ChatML template says when no system text is given; "": none
    bool trims = false;  // white space around the texts goes
    // [INST] families: with the spaces that the template has.
    std::string inst_begin;
    std::string inst_end;
};

// nullopt: none of the families. What a family's template does beyond them is left out: tools, the
// date line of Llama 3.1 and later, [SYSTEM_PROMPT] (such a template is none of them).
std::optional<ChatTemplate> recogniseChatTemplate(std::string_view jinja);

// A one-turn conversation up to where the model's answer begins. The begin token is left to
// Tokenizer::encode(). Only what the template says is markup: a marker typed by the user stays
// text. `eos_text`: the vocabulary's spelling of the end token.
std::vector<TextPart> renderChat(const ChatTemplate& chat,
                                 std::string_view eos_text,
                                 const std::optional<std::string>& system,
                                 std::string_view user);

struct ChatPrompt {
    std::vector<TextPart> parts;  // for Tokenizer::encode()
    std::string warning;          // one sentence; "": the template is supported
};

// By the template in the model's file; where that is not supported, `user` alone as plain text and
// a warning. Throws EngineError kBadArgument where the file has no template.
ChatPrompt makeChatPrompt(const Tokenizer& tokenizer,
                          const std::optional<std::string>& system,
                          std::string_view user);

}  // namespace kvlab
