// SPDX-License-Identifier: MIT
#include <QJsonArray>
#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class ChatTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase();
    void tokenizeShowsTheChatPrompt();
    void generateUsesIt();
    void unsupportedTemplatesAreNamed();
    void badCalls_data();
    void badCalls();

  private:
    static void writeModel(const QString& path, const std::string& chat_template) {
        ModelConfig config;
        config.name = "tiny";
        config.architecture = "llama";
        config.num_layers = 1;
        config.num_heads = 2;
        config.num_kv_heads = 1;
        config.head_dim = 8;
        config.rope_dim = 8;
        config.embedding_dim = 16;
        config.feed_forward_dim = 24;
        config.vocab_size = 320;
        config.context_len = 512;
        GgufVocabulary vocabulary = GgufVocabulary::bytes(config.vocab_size);
        vocabulary.chat_template = chat_template;
        writeModelGguf(*ModelWeights::random(config, 1, true, DataType::kF32), path.toStdString(),
                       vocabulary);
    }

    QTemporaryDir folder_;
    QString chatml_, other_, none_;
};

void ChatTest::initTestCase() {
    QVERIFY(folder_.isValid());
    chatml_ = folder_.filePath("chatml.gguf");
    other_ = folder_.filePath("other.gguf");
    none_ = folder_.filePath("none.gguf");
    writeModel(chatml_, "<|im_start|><|im_end|>");
    writeModel(other_, "{{ messages }}");
    writeModel(none_, "");
}

void ChatTest::tokenizeShowsTheChatPrompt() {
    const CliResult chat = runCli({"tokenize", "--model", chatml_, "--json", "--chat", "--system",
                                   "Be brief", "--text", "Hi"});
    KVLAB_VERIFY_SUCCESS(chat);
    QVERIFY(chat.json().contains("round_trip"));
    QVERIFY(chat.json()["round_trip"].isNull());
    const CliResult plain =
        runCli({"tokenize", "--model", chatml_, "--json", "--text",
                "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                "<|im_start|>assistant\n"});
    KVLAB_VERIFY_SUCCESS(plain);
    QCOMPARE(chat.json()["ids"].toArray(), plain.json()["ids"].toArray());
    const CliResult readable = runCli({"tokenize", "--model", chatml_, "--chat", "--text", "Hi"});
    KVLAB_VERIFY_SUCCESS(readable);
    QVERIFY(readable.out.contains("tokens of the chat prompt"));
}

void ChatTest::generateUsesIt() {
    const QStringList rest = {"--max-tokens", "3", "--ignore-eos", "--json"};
    const CliResult chat =
        runCli(QStringList{"generate", "--model", chatml_, "--chat", "--prompt", "Hi"} + rest);
    KVLAB_VERIFY_SUCCESS(chat);
    const CliResult plain =
        runCli(QStringList{"generate", "--model", chatml_, "--prompt",
                           "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"} +
               rest);
    KVLAB_VERIFY_SUCCESS(plain);
    QCOMPARE(chat.json()["token_ids"], plain.json()["token_ids"]);
    const auto promptTokens = [](const CliResult& result) {
        return result.json()["metrics"].toObject()["prompt_tokens"].toInt();
    };
    QCOMPARE(promptTokens(chat), promptTokens(plain));
    QVERIFY(promptTokens(chat) > 40);
}

void ChatTest::unsupportedTemplatesAreNamed() {
    const CliResult chat =
        runCli({"tokenize", "--model", other_, "--json", "--chat", "--text", "Hi"});
    QCOMPARE(chat.exit_code, 0);
    QVERIFY2(chat.hasOneLineError() && chat.err.contains("chat template"), chat.err.constData());
    const CliResult plain = runCli({"tokenize", "--model", other_, "--json", "--text", "Hi"});
    QCOMPARE(chat.json()["ids"], plain.json()["ids"]);
}

void ChatTest::badCalls_data() {
    QTest::addColumn<QStringList>("arguments");
    QTest::newRow("tokenize without a template")
        << QStringList{"tokenize", "--model", none_, "--chat", "--text", "Hi"};
    QTest::newRow("generate without a template")
        << QStringList{"generate", "--model", none_, "--chat", "--prompt", "Hi"};
    QTest::newRow("system without chat")
        << QStringList{"tokenize", "--model", chatml_, "--system", "s", "--text", "Hi"};
    QTest::newRow("generate with system without chat")
        << QStringList{"generate", "--model", chatml_, "--system", "s", "--prompt", "Hi"};
    QTest::newRow("chat of corpus tokens")
        << QStringList{"generate", "--model", chatml_, "--chat", "--prompt-tokens", "9"};
}

void ChatTest::badCalls() {
    QFETCH(QStringList, arguments);
    const CliResult result = runCli(arguments);
    KVLAB_VERIFY_REFUSAL(result, 2);
}

}  // namespace kvlab

using kvlab::ChatTest;
QTEST_GUILESS_MAIN(ChatTest)
#include "chat_test.moc"
