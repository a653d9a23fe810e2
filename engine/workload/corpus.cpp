// SPDX-License-Identifier: MIT
#include "engine/workload/corpus.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "engine/error.h"

namespace kvlab {
namespace {

using Words = std::vector<std::string_view>;

struct Person {
    std::string_view name;
    std::string_view subject;  // "She" or "He"
};

const std::vector<Person> kPeople = {
    {"Mira", "She"},  {"Otto", "He"},   {"Lena", "She"}, {"Emil", "He"},   {"Clara", "She"},
    {"Sven", "He"},   {"Hedda", "She"}, {"Gus", "He"},   {"Rosa", "She"},  {"Hugo", "He"},
    {"Brita", "She"}, {"Finn", "He"},   {"Nora", "She"}, {"Ivo", "He"},    {"Tilda", "She"},
    {"Arno", "He"},   {"Greta", "She"}, {"Boris", "He"}, {"Wanda", "She"}, {"Karl", "He"},
    {"Elsa", "She"},  {"Jonas", "He"},  {"Vera", "She"}, {"Lukas", "He"},  {"Paula", "She"},
    {"Theo", "He"},   {"Ines", "She"},  {"Anton", "He"}, {"Marta", "She"}, {"Felix", "He"},
    {"Lotte", "She"}, {"Viktor", "He"},
};
const Words kMaterials = {"brass", "wooden", "silver", "copper", "pewter", "iron",
                          "glass", "stone",  "golden", "clay",   "tin",    "bone"};
const Words kItems = {"key",  "bell", "comb", "coin",   "map",   "cup",
                      "lamp", "ring", "horn", "button", "spoon", "whistle"};
const Words kColours = {"green", "red",  "blue",   "brown",  "white", "pink",
                        "black", "grey", "yellow", "purple", "beige", "scarlet"};
const Words kContainers = {"chest",  "box",  "barrel", "basket", "crate",
                           "drawer", "sack", "jar",    "trunk",  "bucket"};
const Words kLandmarkAdjectives = {"old",   "tall",  "quiet", "broken",
                                   "mossy", "sunny", "windy", "narrow"};
const Words kLandmarks = {"mill", "bridge", "forge", "tower", "well",    "barn",
                          "oak",  "chapel", "gate",  "pond",  "orchard", "bakery"};
const Words kFlavours = {"pumpkin", "plum", "cherry", "honey",  "walnut",
                         "apple",   "pear", "ginger", "cheese", "onion"};
const Words kDishes = {"cake", "soup", "pie", "bread", "stew", "tart"};
const Words kPets = {"cat", "dog", "goat", "hen", "pony", "duck", "rabbit", "mouse"};
const Words kPetNames = {"Pip",   "Biscuit", "Pepper", "Moss",   "Button", "Clover",
                         "Dusty", "Fig",     "Hazel",  "Pebble", "Rusty",  "Smoky",
                         "Tansy", "Thistle", "Whisky", "Bramble"};
const Words kJobs = {"baker",  "smith",   "miller",  "carpenter", "doctor", "tailor",
                     "potter", "farmer",  "teacher", "hunter",    "weaver", "fisher",
                     "mayor",  "painter", "cobbler", "gardener"};
const Words kMoods = {"happy", "tired", "proud", "sad", "cheerful", "calm", "hungry", "sleepy"};
const Words kTimes = {"morning", "afternoon", "evening", "night"};
const Words kWeather = {"dry", "cold", "warm", "soft", "strong", "gentle"};

struct FactPhrases {
    std::string_view kind;
    std::array<std::string_view, 2> statements;
    std::array<std::string_view, 2> updates;
    std::array<std::string_view, 2> questions;
    std::array<std::string_view, 2> answers;
};

// '#' stands for the key, '@' for the value. Keys come before values so that a causal model can tie
// them together at the value.
const std::array<FactPhrases, 6> kFactPhrases = {{
    {"place",
     {"The # is in the @.", "You can find the # in the @."},
     {"The # is now in the @.", "The # was moved to the @."},
     {"Where is the #?", "Where can you find the #?"},
     {"In the @.", "It is in the @."}},
    {"code",
     {"# keeps the code @.", "The code of # is @."},
     {"# now keeps the code @.", "The new code of # is @."},
     {"Which code does # keep?", "What is the code of #?"},
     {"The code @.", "It is the code @."}},
    {"home",
     {"# lives by the @.", "The home of # is by the @."},
     {"# now lives by the @.", "The new home of # is by the @."},
     {"Where does # live?", "Where is the home of #?"},
     {"By the @.", "It is by the @."}},
    {"food",
     {"# loves @.", "The best treat for # is @."},
     {"# now loves @.", "These days # loves @."},
     {"What does # love?", "What is the best treat for #?"},
     {"Some @.", "It is @."}},
    {"pet",
     {"# has a @.", "# looks after a @."},
     {"# now has a @.", "# now looks after a @."},
     {"Which pet does # have?", "Which pet does # look after?"},
     {"A @.", "It is a @."}},
    {"job",
     {"The # of the village is @.", "This year the # is @."},
     {"The # of the village is now @.", "The new # is @."},
     {"Who is the #?", "Who is the # of the village?"},
     {"It is @.", "That is @."}},
}};
constexpr std::string_view kUnknownAnswer = "Nobody knows";
constexpr int kHeldOutShare = 10;  // one triple in this many
constexpr int kMaxFacts = 28;
constexpr int kWordsPerQuestion = 8;

// Filler. N a name, M another name, S the first name's pronoun, m material, i item, c colour,
// k container, a landmark adjective, l landmark, f flavour, d dish, p pet, o mood, t time of day,
// w weather, 0 a digit from 2 to 9; each behind '$'. In a little story, whose sentences are
// separated by '|', a letter stands for the same word throughout; digits are drawn anew each time.
// No filler says anything of the six fact kinds.
const Words kFillers = {
    "$N baked $f $d for $M.",
    "$N counted $0$0 sheep on the hill.",
    "$N polished the $m $i.",
    "A $c bird sat on the $l.",
    "The wind was $w that $t.",
    "$N sang an old song by the fire.",
    "The $p slept near the $l.",
    "$N told $M a long story about a $i.",
    "$N painted the $k $c.",
    "$N and $M walked to the $l.",
    "It rained on the $a $l.",
    "$N was $o all $t.",
    "The children played near the $a $l.",
    "$N carried a $c $k to the market.",
    "$N helped $M with the $d.",
    "Smoke rose over the $l in the $t.",
    "$N waved to $M across the road.",
    "A $p ran past the $c door.",
    "$N bought a $m $i for $0 coins.",
    "$N and $M talked about the weather.",
    "The bells rang $0 times.",
    "$N mended the roof of the old house.",
};
const Words kStories = {
    "$N went to the $a $l.|$S found a $c feather there.|$S went home $o.",
    "$N lost a $m $i on the road.|$M helped to look for it.|They found the $i near the $l.",
    "$N heard a noise in the $t.|It was only a $p.|The $p was more afraid than $N.",
    "$M asked $N for some $f $d.|There was enough for two.|They ate the $d by the $l.",
    "A stranger came to the $l.|$N gave the stranger some $d.|The stranger asked for more.",
    "$N climbed the hill in the $t.|$S could see the whole village.|The air was $w.",
    "The $p of $M hid under a $k.|$N brought the $p back.|$M was very $o.",
    "The $p of $M ran off with the $f $d.|$N ran after it as far as the $l.|The $d was gone.",
    "$N told the $p a secret.|Soon the whole village knew it.|The $p looked the other way.",
    "$N made $f $d to surprise $M.|The $d burned.|$M was surprised all the same.",
    "$N painted the $k $c.|Then $S sat on the $k.|Now the trousers of $N are $c too.",
    "$N and $M had a race to the $l.|A $p ran with them.|The $p won.",
    "$N looked for a hat all $t.|$M helped and did not say a word.|The hat was on the head of $N.",
    "A letter came for $M.|$N opened it and read it twice.|$M asked what was in it.",
    "$N bought a $m $i at the market.|$M said that it was far too dear.|The next day $M bought "
    "two.",
    "The $p of $M sat on the $k and did not move.|$N put some $d on the ground.|"
    "The $p moved at once.",
    "$N sang by the $l in the $t.|The $p of $M sang too.|$M closed the window.",
    "$N wanted to mend the $a $l.|The hammer hit a thumb.|The whole village learned a new word.",
    "$N rang the bell in the $t.|The whole village came running.|It was only time for $d.",
    "$N taught a $p to shake hands.|Now the $p shakes hands with everyone.|$M still bows.",
    "$N won the prize for the best $d.|There was no other $d.|$S was $o all the same.",
    "$N lent $M a $m $i.|$M sold the $i at the market.|$N bought the $i back for $0 coins.",
    "The $p of $M was gone.|$N looked by the $a $l.|$M looked in every $k.|"
    "The $p slept under the bed.|$M gave it some $d.",
    "$N wanted to be alone and went to the $l.|$M was there for the same reason.|"
    "They were alone together until the $t.",
};
const Words kTitles = {
    "A day in the village.",       "A quiet day in the village.",  "A busy morning in the village.",
    "One evening in the village.", "A market day in the village.", "A summer day in the village.",
    "Notes from the village.",
};
const Words kClosings = {
    "That was the day in the village.",
    "Then the day was over.",
    "Then everyone went to sleep.",
};

// Own generator (PCG32 seeded through SplitMix64), because the standard distributions differ
// between libraries and a corpus must be the same text everywhere.
class CorpusRandom {
  public:
    CorpusRandom(std::uint64_t seed, std::uint64_t stream) {
        increment_ = (mix(stream ^ 0x6b76'6c61'62ULL) << 1U) | 1U;
        state_ = mix(seed + mix(stream + 0x9e37'79b9'7f4a'7c15ULL));
        next();
    }

    // Uniform in [0, bound); bound > 0. The bias of the multiplication is below 1e-6 here.
    int below(int bound) {
        return static_cast<int>(
            (static_cast<std::uint64_t>(next()) * static_cast<std::uint64_t>(bound)) >> 32U);
    }

    bool chance(int percent) { return below(100) < percent; }

    std::string_view pick(const Words& words) {
        return words[static_cast<std::size_t>(below(static_cast<int>(words.size())))];
    }

  private:
    static std::uint64_t mix(std::uint64_t x) {
        x += 0x9e37'79b9'7f4a'7c15ULL;
        x = (x ^ (x >> 30U)) * 0xbf58'476d'1ce4'e5b9ULL;
        x = (x ^ (x >> 27U)) * 0x94d0'49bb'1331'11ebULL;
        return x ^ (x >> 31U);
    }

    std::uint32_t next() {
        const std::uint64_t old = state_;
        state_ = old * 6364136223846793005ULL + increment_;
        const auto shifted = static_cast<std::uint32_t>(((old >> 18U) ^ old) >> 27U);
        const auto rotation = static_cast<std::uint32_t>(old >> 59U);
        return (shifted >> rotation) | (shifted << ((32U - rotation) & 31U));
    }

    std::uint64_t state_ = 0;
    std::uint64_t increment_ = 1;
};

template <typename T>
void shuffle(std::vector<T>& values, CorpusRandom& random) {
    for (std::size_t i = values.size(); i > 1; --i) {
        std::swap(values[i - 1],
                  values[static_cast<std::size_t>(random.below(static_cast<int>(i)))]);
    }
}

struct Fact {
    int kind_idx = 0;
    std::string key;
    std::string value;
    int span_idx = -1;  // statement that counts; -1: not stated yet
    bool updated = false;
};

std::string drawKey(int kind_idx, CorpusRandom& random) {
    switch (kind_idx) {
        case 0: {
            std::string key(random.pick(kMaterials));
            return key.append(" ").append(random.pick(kItems));
        }
        case 5:
            return std::string(random.pick(kJobs));
        default:
            return std::string(
                kPeople[static_cast<std::size_t>(random.below(static_cast<int>(kPeople.size())))]
                    .name);
    }
}

std::string drawValue(int kind_idx, CorpusRandom& random) {
    std::string value;
    switch (kind_idx) {
        case 0:
            value = random.pick(kColours);
            return value.append(" ").append(random.pick(kContainers));
        case 1:
            for (int digit = 0; digit < 3; ++digit) {
                value.push_back(static_cast<char>('0' + random.below(10)));
            }
            return value;
        case 2:
            value = random.pick(kLandmarkAdjectives);
            return value.append(" ").append(random.pick(kLandmarks));
        case 3:
            value = random.pick(kFlavours);
            return value.append(" ").append(random.pick(kDishes));
        case 4:
            value = random.pick(kPets);
            return value.append(" called ").append(random.pick(kPetNames));
        default:
            return std::string(
                kPeople[static_cast<std::size_t>(random.below(static_cast<int>(kPeople.size())))]
                    .name);
    }
}

class DocumentWriter {
  public:
    DocumentWriter(const CorpusOptions& options, std::uint64_t document_idx, int approx_words)
        : options_(options), random_(options.seed, document_idx), target_words_(approx_words) {}

    CorpusDocument write() {
        chooseKinds();
        may_update_ = random_.chance(options_.update_percent);
        may_be_unanswerable_ = random_.chance(options_.unanswerable_percent);
        bool facts_first = options_.layout == DocumentLayout::kFactsFirst;
        if (options_.layout == DocumentLayout::kMixed) {
            facts_first = random_.chance(30);
        }
        document_.text = random_.pick(kTitles);
        num_words_ += countWords(document_.text);
        document_.text.push_back('\n');
        if (facts_first) {
            writeFactsFirst();
        } else {
            writeStream();
        }
        appendSentence(random_.pick(kClosings));
        return std::move(document_);
    }

  private:
    static int countWords(std::string_view text) {
        return static_cast<int>(std::count(text.begin(), text.end(), ' ')) + 1;
    }

    // With one or two kinds per document only the key tells facts apart. Models learn to look at
    // the key, not just at the kind of question, from such documents.
    void chooseKinds() {
        kinds_ = {0, 1, 2, 3, 4, 5};
        shuffle(kinds_, random_);
        const int roll = random_.below(100);
        if (roll < 45) {
            kinds_.resize(1);
        } else if (roll < 70) {
            kinds_.resize(2);
        }
    }

    void separate() {
        const char last = document_.text.back();
        if (last != '\n') {
            document_.text.push_back(random_.chance(12) ? '\n' : ' ');
        }
    }

    // Appends one sentence; returns the offset of its first character.
    int appendSentence(std::string_view sentence) {
        separate();
        const int begin = static_cast<int>(document_.text.size());
        document_.text.append(sentence);
        num_words_ += countWords(sentence);
        return begin;
    }

    // Appends a phrase with its key and value filled in and reports where they lie.
    void appendPhrase(std::string_view phrase,
                      const std::string& key,
                      const std::string& value,
                      std::array<int, 2>* key_range,
                      std::array<int, 2>* value_range) {
        std::string sentence;
        std::array<int, 2> key_at{-1, -1};
        std::array<int, 2> value_at{-1, -1};
        for (const char c : phrase) {
            const int begin = static_cast<int>(sentence.size());
            if (c == '#') {
                sentence.append(key);
                key_at = {begin, static_cast<int>(sentence.size())};
            } else if (c == '@') {
                sentence.append(value);
                value_at = {begin, static_cast<int>(sentence.size())};
            } else {
                sentence.push_back(c);
            }
        }
        const int offset = appendSentence(sentence);
        if (key_range != nullptr && key_at[0] >= 0) {
            *key_range = {offset + key_at[0], offset + key_at[1]};
        }
        if (value_range != nullptr) {
            *value_range = value_at[0] >= 0
                               ? std::array<int, 2>{offset + value_at[0], offset + value_at[1]}
                               : std::array<int, 2>{offset + static_cast<int>(sentence.size()),
                                                    offset + static_cast<int>(sentence.size())};
        }
    }

    std::size_t phrasing() { return random_.chance(70) ? 0 : 1; }

    // Draws a value for the key on the right side of the held-out line; empty if none was found.
    std::string drawAllowedValue(int kind_idx,
                                 const std::string& key,
                                 const std::string& not_this) {
        for (int attempt = 0; attempt < 200; ++attempt) {
            std::string value = drawValue(kind_idx, random_);
            if (value != not_this &&
                isHeldOutTriple(std::string(kFactPhrases[static_cast<std::size_t>(kind_idx)].kind),
                                key, value) == options_.held_out) {
                return value;
            }
        }
        return {};
    }

    bool isKnownKey(int kind_idx, const std::string& key) const {
        return std::any_of(facts_.begin(), facts_.end(), [&](const Fact& fact) {
            return fact.kind_idx == kind_idx && fact.key == key;
        });
    }

    // A key of an allowed kind that the document has not used; false when none was found.
    bool drawNewKey(int* kind_idx, std::string* key) {
        for (int attempt = 0; attempt < 30; ++attempt) {
            const int kind =
                kinds_[static_cast<std::size_t>(random_.below(static_cast<int>(kinds_.size())))];
            std::string candidate = drawKey(kind, random_);
            if (!isKnownKey(kind, candidate)) {
                *kind_idx = kind;
                *key = std::move(candidate);
                return true;
            }
        }
        return false;
    }

    bool appendNewFact() {
        Fact fact;
        if (!drawNewKey(&fact.kind_idx, &fact.key)) {
            return false;
        }
        fact.value = drawAllowedValue(fact.kind_idx, fact.key, {});
        if (fact.value.empty()) {
            return false;
        }
        facts_.push_back(std::move(fact));
        const FactPhrases& phrases = kFactPhrases[static_cast<std::size_t>(facts_.back().kind_idx)];
        appendStatement(facts_.back(), phrases.statements[phrasing()]);
        return true;
    }

    bool appendUpdate() {
        Fact& fact =
            facts_[static_cast<std::size_t>(random_.below(static_cast<int>(facts_.size())))];
        std::string value = drawAllowedValue(fact.kind_idx, fact.key, fact.value);
        if (value.empty()) {
            return false;
        }
        fact.value = std::move(value);
        fact.updated = true;
        appendStatement(fact,
                        kFactPhrases[static_cast<std::size_t>(fact.kind_idx)].updates[phrasing()]);
        return true;
    }

    void appendStatement(Fact& fact, std::string_view phrase) {
        CorpusSpan span;
        span.kind = SpanKind::kFact;
        span.fact_kind = kFactPhrases[static_cast<std::size_t>(fact.kind_idx)].kind;
        span.fact_idx = static_cast<int>(document_.spans.size());
        span.updated = fact.updated;
        appendPhrase(phrase, fact.key, fact.value, &span.key, &span.value);
        fact.span_idx = span.fact_idx;
        document_.spans.push_back(std::move(span));
    }

    // A question and its answer. A fact without a statement is answered "Nobody knows."
    void appendQuestion(const Fact& fact) {
        const FactPhrases& phrases = kFactPhrases[static_cast<std::size_t>(fact.kind_idx)];
        CorpusSpan question;
        question.kind = SpanKind::kQuestion;
        question.fact_kind = phrases.kind;
        question.fact_idx = fact.span_idx;
        question.updated = fact.updated;
        appendPhrase(phrases.questions[phrasing()], fact.key, {}, &question.key, &question.value);

        CorpusSpan answer = question;
        answer.kind = SpanKind::kAnswer;
        // The answer stays on the question's line.
        document_.text.push_back(' ');
        const std::string_view phrase =
            fact.span_idx < 0 ? std::string_view("@.") : phrases.answers[phrasing()];
        const std::string value = fact.span_idx < 0 ? std::string(kUnknownAnswer) : fact.value;
        const std::size_t at = phrase.find('@');
        const int begin = static_cast<int>(document_.text.size() + at);
        document_.text.append(phrase.substr(0, at)).append(value).append(phrase.substr(at + 1));
        answer.value = {begin, begin + static_cast<int>(value.size())};
        num_words_ += countWords(phrase) + countWords(value) - 1;
        document_.spans.push_back(std::move(question));
        document_.spans.push_back(std::move(answer));
    }

    bool appendUnanswerable() {
        Fact fact;
        if (!drawNewKey(&fact.kind_idx, &fact.key)) {
            return false;
        }
        appendQuestion(fact);
        return true;
    }

    void appendFiller() {
        const std::string_view source =
            random_.chance(22) ? random_.pick(kStories) : random_.pick(kFillers);
        const int num_people = static_cast<int>(kPeople.size());
        const int first = random_.below(num_people);
        const int second = (first + 1 + random_.below(num_people - 1)) % num_people;
        const Person& person = kPeople[static_cast<std::size_t>(first)];
        std::array<std::string_view, 128> drawn{};  // by letter: the word of this story
        drawn['N'] = person.name;
        drawn['M'] = kPeople[static_cast<std::size_t>(second)].name;
        drawn['S'] = person.subject;
        std::string sentence;
        for (std::size_t i = 0; i < source.size(); ++i) {
            if (source[i] == '|') {
                appendSentence(sentence);
                sentence.clear();
            } else if (source[i] != '$') {
                sentence.push_back(source[i]);
            } else if (source[++i] == '0') {
                sentence.push_back(static_cast<char>('2' + random_.below(8)));
            } else {
                std::string_view& word = drawn[static_cast<std::size_t>(source[i])];
                if (word.empty()) word = random_.pick(fillerWords(source[i]));
                sentence.append(word);
            }
        }
        appendSentence(sentence);
    }

    static const Words& fillerWords(char letter) {
        switch (letter) {
            case 'm':
                return kMaterials;
            case 'i':
                return kItems;
            case 'c':
                return kColours;
            case 'k':
                return kContainers;
            case 'a':
                return kLandmarkAdjectives;
            case 'l':
                return kLandmarks;
            case 'f':
                return kFlavours;
            case 'd':
                return kDishes;
            case 'p':
                return kPets;
            case 'o':
                return kMoods;
            case 't':
                return kTimes;
            default:
                return kWeather;
        }
    }

    void writeStream() {
        // About one sentence in three states something until the document's own number of facts is
        // reached; long documents spread theirs over more sentences.
        const int max_facts = std::min(kMaxFacts, 3 + target_words_ / 25);
        const int num_facts = std::max(2, max_facts / 2 + random_.below(max_facts / 2 + 1));
        const int expected_sentences = std::max(8, target_words_ / 7);
        const int fact_percent = std::clamp(num_facts * 160 / expected_sentences, 14, 45);
        const int question_percent = 20 + random_.below(21);
        while (num_words_ < target_words_) {
            const int roll = random_.below(100);
            const int num_stated = static_cast<int>(facts_.size());
            if (roll < fact_percent && num_stated < num_facts) {
                if (appendNewFact()) {
                    continue;
                }
            } else if (num_stated > 0 && roll >= 100 - question_percent) {
                if (may_be_unanswerable_ && random_.chance(25) && appendUnanswerable()) {
                    continue;
                }
                appendQuestion(facts_[static_cast<std::size_t>(random_.below(num_stated))]);
                continue;
            } else if (may_update_ && num_stated > 1 && random_.chance(15) && appendUpdate()) {
                continue;
            }
            appendFiller();
        }
    }

    void writeFactsFirst() {
        const int num_facts = std::clamp(target_words_ / 38, 2, 16);
        for (int attempt = 0;
             attempt < 4 * num_facts && static_cast<int>(facts_.size()) < num_facts; ++attempt) {
            appendNewFact();
        }
        for (int i = 0; may_update_ && i < std::max(1, num_facts / 4) && !facts_.empty(); ++i) {
            appendUpdate();
        }
        std::vector<Fact> asked = facts_;
        if (may_be_unanswerable_) {
            for (int i = 0; i < std::max(1, num_facts / 5); ++i) {
                Fact fact;
                if (drawNewKey(&fact.kind_idx, &fact.key)) {
                    asked.push_back(std::move(fact));
                }
            }
        }
        shuffle(asked, random_);
        const int question_words = kWordsPerQuestion * static_cast<int>(asked.size());
        while (num_words_ + question_words < target_words_) {
            appendFiller();
        }
        for (const Fact& fact : asked) {
            appendQuestion(fact);
        }
        // The estimate of the questions' length can be short.
        while (num_words_ < target_words_) {
            appendFiller();
        }
    }

    const CorpusOptions& options_;
    CorpusRandom random_;
    int target_words_;
    int num_words_ = 0;
    bool may_update_ = false;
    bool may_be_unanswerable_ = false;
    std::vector<int> kinds_;
    std::vector<Fact> facts_;
    CorpusDocument document_;
};

std::string_view spanKindName(SpanKind kind) {
    switch (kind) {
        case SpanKind::kFact:
            return "fact";
        case SpanKind::kQuestion:
            return "question";
        case SpanKind::kAnswer:
            return "answer";
    }
    return "";
}

std::string rangeJson(const std::array<int, 2>& range) {
    return "[" + std::to_string(range[0]) + ", " + std::to_string(range[1]) + "]";
}

}  // namespace

bool isHeldOutTriple(const std::string& fact_kind,
                     const std::string& key,
                     const std::string& value) {
    // 64-bit FNV-1a; its high bits are folded down because the low ones alone follow the last
    // characters too closely.
    std::uint64_t hash = 0xcbf2'9ce4'8422'2325ULL;
    for (const std::string* part : {&fact_kind, &key, &value}) {
        for (const char c : *part) {
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x0000'0100'0000'01b3ULL;
        }
        hash = (hash ^ 0x1fU) * 0x0000'0100'0000'01b3ULL;
    }
    hash ^= hash >> 33U;
    hash *= 0xff51'afd7'ed55'8ccdULL;
    hash ^= hash >> 33U;
    return hash % kHeldOutShare == 0;
}

CorpusDocument generateDocument(const CorpusOptions& options,
                                std::uint64_t document_idx,
                                int approx_words) {
    if (approx_words < 1 || approx_words > kMaxCorpusWords) {
        throw EngineError(ErrorKind::kBadArgument,
                          "a corpus document has 1 to " + std::to_string(kMaxCorpusWords) +
                              " words, not " + std::to_string(approx_words));
    }
    for (const int percent : {options.update_percent, options.unanswerable_percent}) {
        if (percent < 0 || percent > 100) {
            throw EngineError(
                ErrorKind::kBadArgument,
                "a corpus percentage lies in 0 to 100, not " + std::to_string(percent));
        }
    }
    return DocumentWriter(options, document_idx, approx_words).write();
}

std::string corpusDocumentJson(const CorpusDocument& document) {
    std::string json = "{\"text\": \"";
    for (const char c : document.text) {
        if (c == '\n') {
            json.append("\\n");
        } else {
            json.push_back(c);
        }
    }
    json.append("\", \"spans\": [");
    for (std::size_t i = 0; i < document.spans.size(); ++i) {
        const CorpusSpan& span = document.spans[i];
        json.append(i == 0 ? "" : ", ")
            .append("{\"kind\": \"")
            .append(spanKindName(span.kind))
            .append("\", \"key\": ")
            .append(rangeJson(span.key))
            .append(", \"value\": ")
            .append(rangeJson(span.value))
            .append(", \"fact_kind\": \"")
            .append(span.fact_kind)
            .append("\", \"fact\": ")
            .append(std::to_string(span.fact_idx))
            .append(", \"updated\": ")
            .append(span.updated ? "true" : "false")
            .append("}");
    }
    json.append("]}");
    return json;
}

}  // namespace kvlab
