//! Thinking before the answer, and what of it stays in the history: on a decoder that says what its
//! script says, with a vocabulary of letters and tags.

use std::path::Path;
use std::sync::Arc;

use unsay::engine::{Engine, EngineOptions};
use unsay::llm::{
    Ask, Embedded, FinishReason, Llm, LlmError, Opening, Reply, Role, SilentSink, Thinking,
};
use unsay::text::{ChatTemplate, Message, TokenId, Tokenizer};

use crate::engine::fake::{Fake, MODEL, block_on};
use crate::support::GgufBuilder;

const LINE: u32 = 26;
const THINK: u32 = 27;
const END_THINK: u32 = 28;
const TURN: u32 = 29;
const END_TURN: u32 = 30;

/// Letters, a line end, tags of thinking, tokens of turns and a space: 32 tokens, as the decoder has.
pub fn letters() -> Tokenizer {
    let mut tokens: Vec<(String, i32)> = ('a'..='z').map(|c| (c.to_string(), 1)).collect();
    let rest =
        [("\n", 1), ("<think>", 4), ("</think>", 4), ("<turn>", 3), ("</turn>", 3), ("▁", 1)];
    tokens.extend(rest.map(|(token, kind)| (token.to_owned(), kind)));
    let gguf = GgufBuilder::default()
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", tokens.iter().map(|token| token.0.as_str()))
        .f32s("tokenizer.ggml.scores", vec![-1.0; tokens.len()])
        .i32s("tokenizer.ggml.token_type", tokens.iter().map(|token| token.1))
        .bool("tokenizer.ggml.add_space_prefix", false)
        .bool("tokenizer.ggml.add_bos_token", false)
        .u32("tokenizer.ggml.eos_token_id", END_TURN);
    crate::pieces::read(&gguf).unwrap()
}

/// As Qwen3's: a switch for thinking, and what was thought is left out of turns that are past.
pub const SWITCHED: &str = "\
{%- for m in messages %}{% set said = m.content %}
{%- if '</think>' in said and not loop.last %}{% set said = said.split('</think>')[-1] %}{% endif %}
{{- '<turn>' + m.role + '\\n' + said + '</turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<turn>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}{% endif %}";

pub fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, Path::new("own.jinja")).unwrap()
}

/// A model that says what its script says, position by position.
pub fn model(source: &str, script: &[u32]) -> Embedded {
    let script = script.iter().map(|&id| TokenId(id)).collect();
    let hosted = Fake::scripted(script).hosted(MODEL, vec![TokenId(END_TURN)]);
    let options = EngineOptions { check_every_step: true, ..EngineOptions::default() };
    let engine = Engine::start(vec![hosted], options).unwrap();
    Embedded::new(engine, MODEL, Arc::new(letters()), Arc::new(template(source))).unwrap()
}

fn thinking(model: Embedded, switch: Option<bool>, budget: Option<usize>) -> Embedded {
    model.with_thinking(Thinking { switch, budget }, Path::new("own.gguf")).unwrap()
}

pub fn opening() -> Opening {
    Opening {
        system: None,
        method: "test".into(),
        item: "item".into(),
        role: "judge".into(),
        sample: 0,
        seed: 1,
        sink: Arc::new(SilentSink),
    }
}

pub fn ask(max_tokens: usize) -> Ask {
    Ask { max_tokens, ..Ask::default() }
}

/// The ids of a text with its tags.
fn ids(text: &str) -> Vec<u32> {
    letters().encode_template(text).unwrap().iter().map(|id| id.0).collect()
}

/// What the model sees before its first reply to `q`.
fn prompt() -> Vec<u32> {
    ids("<turn>user\nq</turn>\n<turn>assistant\n")
}

fn first_reply(script: &str, budget: Option<usize>, max_tokens: usize) -> (Reply, Embedded) {
    let model = model(SWITCHED, &[prompt(), ids(script)].concat());
    let model = thinking(model, None, budget);
    let reply = block_on(async {
        let mut dialogue = model.open(opening()).await.unwrap();
        dialogue.say(Role::User, "q");
        let reply = dialogue.reply(&ask(max_tokens)).await.unwrap();
        let ledger = model.engine().ledger().await.unwrap();
        ledger.check().unwrap();
        assert_eq!(ledger.total().generated_tokens, reply.cost.generated_tokens);
        assert_eq!(ledger.total().computed_tokens, reply.cost.computed_tokens);
        reply
    });
    (reply, model)
}

fn numbers(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

#[test]
fn what_was_thought_is_told_apart_from_what_was_said() {
    let (reply, _) = first_reply("<think>\nab\n</think>\n\nx y</turn>", None, 40);
    let thought = reply.thought.as_ref().unwrap();
    assert_eq!((thought.text.as_str(), reply.text.as_str()), ("ab", "x y"));
    assert_eq!(numbers(&reply.ids), ids("<think>\nab\n</think>\n\nx y"));
    // The tags are the thought's; the line ends behind it have no text.
    assert_eq!((thought.tokens.len(), thought.forced, reply.tokens.len()), (6, 0, 5));
    let texts: Vec<&str> = reply.tokens.iter().map(|token| token.text.as_str()).collect();
    assert_eq!(texts, ["", "", "x", " ", "y"]);
    assert_eq!(reply.finish, FinishReason::StopId);
    let (plain, _) = first_reply("x y</turn>", None, 40);
    assert_eq!((plain.thought, plain.text.as_str()), (None, "x y"));
}

#[test]
fn a_spent_budget_closes_the_block_and_the_answer_follows() {
    // The model would think on: what it says at the four places that are closed for it is not taken.
    let (reply, _) = first_reply("<think>abcdefgxy</turn>", Some(3), 40);
    assert_eq!(numbers(&reply.ids), ids("<think>abc\n</think>\n\nxy"));
    let thought = reply.thought.as_ref().unwrap();
    assert_eq!((thought.text.as_str(), thought.forced), ("abc", 4));
    assert_eq!((reply.text.as_str(), &reply.finish), ("xy", &FinishReason::StopId));
    // Drawn: the tag, three letters, two letters, the end of the turn. What was put in is no draw.
    assert_eq!((thought.tokens.len(), reply.tokens.len()), (4, 2));
    assert_eq!(reply.cost.generated_tokens, 7);
    let drawn = thought.tokens.iter().chain(&reply.tokens);
    assert!(drawn.into_iter().all(|token| token.logprob.is_some()));
    // Computed: the prompt, the tag (whose draw ended a call) and the four ids that were put in.
    assert_eq!(reply.cost.computed_tokens, prompt().len() as u64 + 1 + 4);
}

#[test]
fn a_block_that_closes_in_time_is_as_without_a_budget() {
    let script = "<think>ab</think>\n\nxy</turn>";
    let (free, _) = first_reply(script, None, 40);
    for budget in [3, 2, 100] {
        let (bound, _) = first_reply(script, Some(budget), 40);
        // At two tokens the budget is spent before the tag comes.
        let expected =
            if budget == 2 { ids("<think>ab\n</think>\n\n") } else { numbers(&free.ids) };
        assert_eq!(numbers(&bound.ids)[..expected.len()], expected, "{budget}");
        if budget > 2 {
            assert_eq!((&bound.thought, &bound.tokens), (&free.thought, &free.tokens), "{budget}");
            assert_eq!(bound.text, free.text);
        }
    }
    // A model that does not think is not troubled.
    let (free, _) = first_reply("xy</turn>", None, 40);
    let (bound, _) = first_reply("xy</turn>", Some(0), 40);
    assert_eq!(
        (&bound.ids, &bound.tokens, &bound.cost.generated_tokens),
        (&free.ids, &free.tokens, &3)
    );
}

#[test]
fn a_budget_of_nothing_and_a_reply_that_is_cut() {
    let (reply, _) = first_reply("<think>abcdxy</turn>", Some(0), 40);
    assert_eq!(numbers(&reply.ids), ids("<think>\n</think>\n\nxy"));
    assert_eq!(reply.thought.unwrap().text, "");
    // The reply's own limit comes first: five tokens in all.
    let (reply, _) = first_reply("<think>abcdefgh", Some(30), 5);
    assert_eq!(
        (numbers(&reply.ids), &reply.finish),
        (ids("<think>abcd"), &FinishReason::MaxTokens)
    );
    assert_eq!(reply.text, "");
    let (reply, _) = first_reply("<think>abcdefghxyz", Some(2), 5);
    assert_eq!(numbers(&reply.ids), ids("<think>ab\n</think>\n\ngh"));
    assert_eq!(reply.finish, FinishReason::MaxTokens);
}

#[test]
fn a_block_that_the_template_opens_is_bounded_too() {
    let source = "{% for m in messages %}<turn>{{ m.role }}{{ m.content }}</turn>{% endfor %}\
                  {% if add_generation_prompt %}<turn><think>{% endif %}";
    let before = ids("<turn>userq</turn><turn><think>");
    let model = model(source, &[before, ids("abcdefgxy</turn>")].concat());
    let model = thinking(model, None, Some(3));
    block_on(async {
        let mut dialogue = model.open(opening()).await.unwrap();
        dialogue.say(Role::User, "q");
        let reply = dialogue.reply(&ask(40)).await.unwrap();
        assert_eq!(numbers(&reply.ids), ids("abc\n</think>\n\nxy"));
        assert_eq!((reply.thought.unwrap().text.as_str(), reply.text.as_str()), ("abc", "xy"));
    });
}

#[test]
fn a_switch_or_a_bound_that_a_model_lacks_is_refused() {
    let origin = Path::new("own.gguf");
    let plain = "{% for m in messages %}<turn>{{ m.content }}</turn>{% endfor %}";
    let switch = Thinking { switch: Some(false), budget: None };
    let error = model(plain, &[]).with_thinking(switch, origin).err().unwrap().to_string();
    assert!(error.contains("own.gguf has no switch for thinking"), "{error}");
    assert!(template(SWITCHED).has_thinking_switch(&letters()).unwrap());
    let refusing = "{{ raise_exception('never') }}";
    assert!(!template(refusing).has_thinking_switch(&letters()).unwrap());
}

/// Turn by turn: what is held when a turn is added begins the ids of the whole dialogue, and they are
/// those of a full rendering but for what the template leaves out of the past.
#[test]
fn the_lead_of_a_reply_stays_as_it_was() {
    let tokenizer = letters();
    let off = template(SWITCHED).with_variable("enable_thinking", false);
    let first = [Message::text(Role::User, "q")];
    let lead = off.lead(&tokenizer, &first).unwrap();
    assert_eq!(numbers(&lead), ids("<turn>assistant\n<think>\n\n</think>\n\n"));
    let reply = tokenizer.encode("yes").unwrap();
    let render = |lead: &[TokenId]| {
        let messages = [
            first[0],
            Message::ids(Role::Assistant, &reply).behind(lead),
            Message::text(Role::User, "more"),
        ];
        numbers(&off.ids(&tokenizer, &messages, false).unwrap())
    };
    let (user, more) = ("<turn>user\nq</turn>\n", "</turn>\n<turn>user\nmore</turn>\n");
    let block = "<turn>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(render(&lead), ids(&format!("{user}{block}yes{more}")));
    // A lead that the template did not write here is not put in its place.
    assert_eq!(render(&[]), ids(&format!("{user}<turn>assistant\nyes{more}")));
    let other = tokenizer.encode_template("<turn>user\n").unwrap();
    assert_eq!(render(&other), render(&[]));
    // Where the template now writes more, what was there stays too.
    let adding = template(
        "{% for m in messages %}<turn>{{ m.role }}\n{% if m.role == 'assistant' %}<think></think>\
         {% endif %}{{ m.content }}</turn>{% endfor %}{% if add_generation_prompt %}<turn>assistant\n\
         {% endif %}",
    );
    let lead = adding.lead(&tokenizer, &first).unwrap();
    let messages = [first[0], Message::ids(Role::Assistant, &reply).behind(&lead)];
    let got = numbers(&adding.ids(&tokenizer, &messages, false).unwrap());
    assert_eq!(got, ids("<turn>user\nq</turn><turn>assistant\nyes</turn>"));
}

/// A refusal is the template's own words, for the request that it refuses and no other.
pub async fn refusal(model: &Embedded, texts: &[(Role, &str)]) -> Result<Reply, LlmError> {
    let mut dialogue = model.open(opening()).await.unwrap();
    texts.iter().for_each(|(role, text)| dialogue.say(*role, text));
    dialogue.reply(&ask(2)).await
}

#[test]
fn these_are_the_ids_of_the_tags() {
    assert_eq!(ids("\n<think></think><turn></turn>"), [LINE, THINK, END_THINK, TURN, END_TURN]);
    // In content the tokens of turns are text, which this vocabulary cannot write.
    assert!(letters().encode("<turn>").is_err());
    assert_eq!(letters().encode("<think>").unwrap(), [TokenId(THINK)]);
}
