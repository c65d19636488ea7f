//! Dialogues: of the scripted model, and of the engine on the default model.

use std::sync::Arc;

use unsay::llm::{
    Ask, Event, FinishReason, Llm, LlmError, Opening, Role, Scripted, ScriptedReply, SilentSink,
};

use Role::{Assistant, System, User};

fn opening(system: Option<&str>) -> Opening {
    Opening {
        system: system.map(str::to_owned),
        method: "test".into(),
        item: "item".into(),
        role: "judge".into(),
        sample: 0,
        seed: 1,
        sink: Arc::new(SilentSink),
    }
}

#[tokio::test]
async fn a_script_is_said_in_order_and_what_was_shown_is_kept() {
    let llm = Scripted::new(["one", "two", "three"]);
    let mut dialogue = llm.open(opening(Some("Be short."))).await.unwrap();
    dialogue.say(User, "first");
    let mark = dialogue.mark();
    assert_eq!(dialogue.reply(&Ask::default()).await.unwrap().text, "one");
    let taken = dialogue.rewind(mark).await.unwrap();
    assert_eq!(taken.messages, [(Assistant, "one".to_owned())]);
    assert_eq!(dialogue.reply(&Ask::default()).await.unwrap().text, "two");

    let mut fork = dialogue.fork(3).await.unwrap();
    fork.say(User, "in the fork");
    assert_eq!(fork.reply(&Ask::default()).await.unwrap().text, "three");
    assert_eq!(dialogue.messages().len(), 3);

    let heard = llm.heard();
    let first = [(System, "Be short.".to_owned()), (User, "first".to_owned())];
    assert_eq!(heard[0].messages, first);
    assert_eq!(heard[1].messages, first);
    let forked = [(Assistant, "two".to_owned()), (User, "in the fork".to_owned())];
    assert_eq!(heard[2].messages, [first.to_vec(), forked.to_vec()].concat());
    assert_eq!([heard[0].attempt, heard[1].attempt, heard[2].attempt], [0, 1, 1]);
    assert_eq!([heard[1].sample, heard[2].sample], [0, 3]);
    let streams: std::collections::HashSet<u64> = heard.iter().map(|h| h.stream).collect();
    assert_eq!(streams.len(), 3);

    let over = dialogue.reply(&Ask::default()).await.unwrap_err();
    assert!(matches!(over, LlmError::ScriptOver { turn: 4 }), "{over}");
    let unable = dialogue.score("x").await.unwrap_err();
    assert!(matches!(unable, LlmError::NotAble { .. }));
}

#[tokio::test]
async fn scripted_statistics_finish_and_cost_are_as_written() {
    let reply = ScriptedReply::new("ab cd").logprobs([-0.5, 0.0]).finish(FinishReason::MaxTokens);
    let llm = Scripted::new([reply, "ok".into()]);
    let mut dialogue = llm.open(opening(None)).await.unwrap();
    dialogue.say(User, "three words here");
    let reply = dialogue.reply(&Ask::default()).await.unwrap();
    assert_eq!(reply.finish, FinishReason::MaxTokens);
    let texts: Vec<&str> = reply.tokens.iter().map(|t| t.text.as_str()).collect();
    assert_eq!(texts.concat(), "ab cd");
    assert_eq!(reply.tokens[0].logprob, Some(-0.5));
    assert_eq!((reply.cost.prompt_tokens, reply.cost.generated_tokens), (3, 2));
    dialogue.say(User, "more");
    let cost = dialogue.reply(&Ask::default()).await.unwrap().cost;
    assert_eq!((cost.prompt_tokens, cost.cached_tokens, cost.computed_tokens), (6, 5, 1));
}

#[tokio::test]
async fn a_mark_that_was_taken_back_is_refused() {
    let llm = Scripted::new(["one"]);
    let mut dialogue = llm.open(opening(None)).await.unwrap();
    let start = dialogue.mark();
    dialogue.say(User, "a");
    let late = dialogue.mark();
    dialogue.rewind(start).await.unwrap();
    assert!(matches!(dialogue.rewind(late).await, Err(LlmError::StaleMark)));
    assert!(dialogue.messages().is_empty());
}

#[tokio::test]
async fn events_tell_what_happens_as_it_happens() {
    #[derive(Default)]
    struct Names(std::sync::Mutex<Vec<String>>);
    impl unsay::llm::Sink for Names {
        fn event(&self, event: &Event) {
            let json = serde_json::to_value(event).unwrap();
            let name = format!("{} {}", json["event"], json["dialogue"]).replace('"', "");
            self.0.lock().unwrap().push(name);
        }
    }
    let names = Arc::new(Names::default());
    let llm = Scripted::new(["one"]);
    let opened = Opening { sink: names.clone(), sample: 2, ..opening(Some("s")) };
    let mut dialogue = llm.open(opened).await.unwrap();
    let mark = dialogue.mark();
    dialogue.say(User, "a");
    dialogue.reply(&Ask::default()).await.unwrap();
    dialogue.rewind(mark).await.unwrap();
    let expected =
        ["said judge#2", "said judge#2", "piece judge#2", "replied judge#2", "rewound judge#2"];
    assert_eq!(*names.0.lock().unwrap(), expected);
}
