//! Asks the user at the terminal for approvals, and for the answers to questions of tools.
//!
//! State: the rules that were granted while the command runs. They also apply to calls that were already waiting.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::sync::{Arc, Mutex, PoisonError};

use conjure::conversation::Decision;
use conjure::session::{InputAnswer, InputAnswers, InputForm, InputQuestion};
use conjure::skill::AllowRule;
use conjure::tool::{CallId, ToolCall};

use crate::cli::approvals::always_allow::{grant_always, rule_for_call, rule_matches};
use crate::cli::approvals::approval_text::{ApprovalReply, describe_call, parse_reply, reply_choices};
use crate::cli::approvals::input_form::{FieldInput, describe_question, form_fields};
use crate::cli::approvals::reply_reader::{ReplyLine, ReplyReader, StandardInputReplies};
use crate::cli::terminal::{Terminal, printable};

/// The user at the terminal of this process.
pub(crate) struct TerminalApprover {
    terminal: Arc<Terminal>,
    replies: Arc<dyn ReplyReader>,
    granted: Mutex<Vec<AllowRule>>,
}

/// The outcome of an approval question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApprovalOutcome {
    Decided(Decision),
    /// The input ended, or the user cannot be asked now. The call keeps waiting.
    Undecided,
    /// The user interrupted the question.
    Interrupted,
}

/// A tool call that waits for the user's answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingInput {
    pub(crate) call: CallId,
    pub(crate) round: u32,
    pub(crate) asked_by: String,
    pub(crate) questions: BTreeMap<String, InputQuestion>,
}

/// The outcome of the questions of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum InputOutcome {
    Answered(InputAnswers),
    /// The input ended, or the user cannot be asked now. The call keeps waiting.
    Undecided,
    /// The user interrupted a question.
    Interrupted,
}

impl TerminalApprover {
    /// The approver of this terminal; `None` unless standard input and standard error are terminals.
    pub(crate) fn for_terminal(terminal: &Arc<Terminal>) -> Option<Self> {
        let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
        let replies = StandardInputReplies::new(Arc::clone(terminal));
        is_terminal.then(|| Self::with_replies(terminal, Arc::new(replies)))
    }

    /// An approver that reads its replies from `replies`.
    pub(crate) fn with_replies(terminal: &Arc<Terminal>, replies: Arc<dyn ReplyReader>) -> Self {
        Self { terminal: Arc::clone(terminal), replies, granted: Mutex::default() }
    }

    /// Asks until the reply is clear.
    pub(crate) async fn ask(&self, call: &ToolCall) -> ApprovalOutcome {
        let granted = || self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        // All calls of a response wait before the first one is decided, so a new rule may already apply.
        if granted().iter().any(|rule| rule_matches(rule, call)) {
            return ApprovalOutcome::Decided(Decision::Allow);
        }
        let rule = rule_for_call(call);
        let choices = reply_choices(rule.as_ref(), |text| self.terminal.redacted(text).into_owned());
        self.describe(call).await;
        if !self.replies.begin_question() {
            return ApprovalOutcome::Undecided;
        }
        loop {
            let line = match self.replies.reply_line(choices.prompt.clone()).await {
                ReplyLine::Line(line) => line,
                ReplyLine::Ended => return ApprovalOutcome::Undecided,
                ReplyLine::Interrupted => return ApprovalOutcome::Interrupted,
            };
            match parse_reply(&line) {
                ApprovalReply::Allow => return ApprovalOutcome::Decided(Decision::Allow),
                ApprovalReply::Always if choices.has_always => {
                    granted().extend(rule);
                    return ApprovalOutcome::Decided(grant_always(call).unwrap_or(Decision::Allow));
                }
                ApprovalReply::Deny(reason) => return ApprovalOutcome::Decided(Decision::Deny { reason }),
                ApprovalReply::Unclear | ApprovalReply::Always => {}
            }
        }
    }

    /// Asks the questions of a tool, one after the other.
    pub(crate) async fn ask_input(&self, input: &PendingInput) -> InputOutcome {
        let mut answers = InputAnswers::new();
        for (id, question) in &input.questions {
            match self.ask_question(&input.asked_by, question).await {
                Ok(answer) => answers.insert(id.clone(), answer),
                Err(outcome) => return outcome,
            };
        }
        InputOutcome::Answered(answers)
    }

    /// Asks one question. Returns an error if there is no answer.
    async fn ask_question(
        &self,
        asked_by: &str,
        question: &InputQuestion,
    ) -> Result<InputAnswer, InputOutcome> {
        self.note(describe_question(asked_by, question)).await;
        // Input that was typed before the question is not an answer.
        if !self.replies.begin_question() {
            return Err(InputOutcome::Undecided);
        }
        match &question.form {
            InputForm::Form { requested_schema } => {
                if !self.agrees("answer it? y: yes, n: no > ").await? {
                    return Ok(InputAnswer::Decline);
                }
                let mut content = serde_json::Map::new();
                for field in form_fields(requested_schema) {
                    loop {
                        match field.parse(&self.line(&field.prompt).await?) {
                            FieldInput::Value(value) => {
                                content.insert(field.name.clone(), value);
                            }
                            FieldInput::LeftOut => {}
                            FieldInput::Invalid(reason) => {
                                self.note(format!("    {reason}")).await;
                                continue;
                            }
                        }
                        break;
                    }
                }
                Ok(InputAnswer::Accept { content: Some(content.into()) })
            }
            InputForm::Url { url } => {
                self.note(format!("    open this address in your browser: {}", printable(url))).await;
                let is_done = self.agrees("have you finished there? y: yes, n: no > ").await?;
                Ok(if is_done { InputAnswer::Accept { content: None } } else { InputAnswer::Decline })
            }
            _ => Ok(InputAnswer::Cancel),
        }
    }

    /// Asks until the reply is yes or no.
    async fn agrees(&self, prompt: &str) -> Result<bool, InputOutcome> {
        loop {
            match parse_reply(&self.line(prompt).await?) {
                ApprovalReply::Allow => return Ok(true),
                ApprovalReply::Deny(_) => return Ok(false),
                ApprovalReply::Unclear | ApprovalReply::Always => {}
            }
        }
    }

    async fn line(&self, prompt: &str) -> Result<String, InputOutcome> {
        match self.replies.reply_line(prompt.to_owned()).await {
            ReplyLine::Line(line) => Ok(line),
            ReplyLine::Ended => Err(InputOutcome::Undecided),
            ReplyLine::Interrupted => Err(InputOutcome::Interrupted),
        }
    }

    async fn describe(&self, call: &ToolCall) {
        self.note(describe_call(call, |text| self.terminal.redacted(text).into_owned())).await;
    }

    /// Prints a text on a blocking thread, since the write may block if the terminal is not read.
    async fn note(&self, text: String) {
        let terminal = Arc::clone(&self.terminal);
        let printing = tokio::task::spawn_blocking(move || terminal.note(text.trim_end()));
        let _ = printing.await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use serde_json::json;

    use super::*;

    /// Lines that are typed one after the other; then the input ends.
    struct TypedLines(Mutex<VecDeque<&'static str>>);

    impl ReplyReader for TypedLines {
        fn begin_question(&self) -> bool {
            true
        }

        fn reply_line(&self, _: String) -> BoxFuture<'_, ReplyLine> {
            let line = self.0.lock().unwrap().pop_front();
            let line = line.map_or(ReplyLine::Ended, |line| match line {
                "^C" => ReplyLine::Interrupted,
                line => ReplyLine::Line(line.to_owned()),
            });
            std::future::ready(line).boxed()
        }
    }

    async fn answered(form: InputForm, lines: &[&'static str]) -> InputOutcome {
        let replies = TypedLines(Mutex::new(lines.iter().copied().collect()));
        let approver = TerminalApprover::with_replies(&Arc::new(Terminal::plain()), Arc::new(replies));
        let question = InputQuestion { message: "Which?".to_owned(), form };
        let questions = [("a".to_owned(), question)].into();
        let input = PendingInput { call: CallId::new("1"), round: 1, asked_by: "git".to_owned(), questions };
        approver.ask_input(&input).await
    }

    #[tokio::test]
    async fn a_form_is_filled_in_declined_or_left() {
        let schema = json!({
            "properties": {"name": {"type": "string"}, "force": {"type": "boolean"}},
            "required": ["name", "force"],
        });
        let form = || InputForm::Form { requested_schema: schema.clone() };
        let outcome = |answer| InputOutcome::Answered([("a".to_owned(), answer)].into());
        let content = Some(json!({"name": "old", "force": true}));
        let lines = ["what?", "y", "", "old", "maybe", "yes"];
        assert_eq!(answered(form(), &lines).await, outcome(InputAnswer::Accept { content }));
        assert_eq!(answered(form(), &["n"]).await, outcome(InputAnswer::Decline));
        assert_eq!(answered(form(), &["y", "old"]).await, InputOutcome::Undecided);
        assert_eq!(answered(form(), &["y", "^C"]).await, InputOutcome::Interrupted);
        let page = || InputForm::Url { url: "https://example.com".to_owned() };
        assert_eq!(answered(page(), &["y"]).await, outcome(InputAnswer::Accept { content: None }));
        assert_eq!(answered(page(), &["n"]).await, outcome(InputAnswer::Decline));
    }
}
