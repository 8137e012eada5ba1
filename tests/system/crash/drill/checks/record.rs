//! The recorded events of one session, and their invariants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use conjure::Block;
use conjure::artifact::Digest;
use conjure::conversation::{Event, EventKind};
use conjure::journal::SessionKey;
use conjure::runtime::Timestamp;
use conjure::session::EventProjection;
use conjure_conversation::{
    CallOutcome, Command, CommandKind, SessionState, Step, apply, decide, next, pairing,
};
use conjure_journal::RecordedEvent;

use crate::drill::Result;
use crate::drill::checks::findings::Findings;
use crate::drill::fixture::{SECRET, place};
use crate::drill::log_lines::{LogLine, fingerprint};
use crate::drill::player::{EFFECTS, line_of};

pub(crate) struct Record {
    key: SessionKey,
    state: SessionState,
    events: Vec<Event>,
    projection: EventProjection,
    /// The prints of what is shown of each event.
    shown: Vec<Vec<u64>>,
    /// Of the bodies, as they were read first.
    prints: Vec<u64>,
    calls: BTreeMap<String, Call>,
    decided: BTreeSet<String>,
    finished_turns: BTreeSet<u64>,
}

#[derive(Default)]
struct Call {
    line: Option<String>,
    starts: u32,
    abandons: u32,
    ends: Vec<(CallOutcome, bool)>,
}

impl Record {
    pub(crate) fn new(key: SessionKey) -> Self {
        Self {
            projection: EventProjection::new(key.session),
            shown: Vec::new(),
            key,
            state: SessionState::default(),
            events: Vec::new(),
            prints: Vec::new(),
            calls: BTreeMap::new(),
            decided: BTreeSet::new(),
            finished_turns: BTreeSet::new(),
        }
    }

    pub(crate) const fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Which contents of skills it was opened with.
    pub(crate) fn skills(&self) -> BTreeSet<Digest> {
        match self.kind(0) {
            Some(EventKind::Opened { profile }) => profile.skills.iter().map(|skill| skill.digest).collect(),
            _ => BTreeSet::new(),
        }
    }

    pub(crate) fn known(&self) -> u64 {
        self.events.len() as u64
    }

    /// Takes in what was recorded since.
    pub(crate) fn read(&mut self, recorded: &[RecordedEvent], findings: &mut Findings) -> Result<()> {
        for one in recorded {
            if one.seq != self.known() {
                findings.lost.push(format!("{}: event {} comes after {}", self.key, one.seq, self.known()));
            }
            let event: Event = serde_json::from_slice(&one.body)?;
            if String::from_utf8_lossy(&one.body).contains(SECRET) {
                findings.exposed.push(format!("{}: event {} holds a secret", self.key, one.seq));
            }
            self.prints.push(fingerprint(&String::from_utf8_lossy(&one.body)));
            self.apply(&event, findings);
            let events = self.projection.apply(one.seq, &event);
            self.shown.push(events.iter().map(|events| fingerprint(&events.to_line())).collect());
            self.events.push(event);
        }
        findings.tally.events += recorded.len() as u64;
        Ok(())
    }

    fn apply(&mut self, event: &Event, findings: &mut Findings) {
        if let EventKind::ModelCallStarted { turn, call, .. } = &event.kind
            && let Err(error) = pairing::check(self.state.messages())
        {
            findings.invalid.push(format!("{}: call {call} of turn {}: {error}", self.key, turn.number()));
        }
        apply(&mut self.state, event);
        match &event.kind {
            EventKind::ModelAnswered { response, .. } => {
                for call in response.content.iter().filter_map(Block::tool_call) {
                    let known = self
                        .calls
                        .insert(call.id.as_str().to_owned(), Call { line: line_of(call), ..Call::default() });
                    if known.is_some() {
                        findings.repeated.push(format!(
                            "{}: the call {} is there twice",
                            self.key,
                            call.id.as_str()
                        ));
                    }
                }
            }
            EventKind::ModelCallAbandoned { .. } => findings.tally.abandoned += 1,
            EventKind::ToolStarted { call, idempotent } => {
                let this = self.calls.entry(call.as_str().to_owned()).or_default();
                this.starts += 1;
                if this.starts > 1 && !idempotent || this.starts > 1 + this.abandons {
                    findings.repeated.push(format!(
                        "{}: the call {} was started again",
                        self.key,
                        call.as_str()
                    ));
                }
            }
            EventKind::ToolAbandoned { call } => {
                self.calls.entry(call.as_str().to_owned()).or_default().abandons += 1;
                findings.tally.done_again += 1;
            }
            EventKind::ToolFinished { result, outcome } => {
                let id = result.tool_use_id.as_str();
                let this = self.calls.entry(id.to_owned()).or_default();
                this.ends.push((*outcome, result.is_error));
                if this.ends.len() > 1 {
                    findings.repeated.push(format!("{}: the call {id} has two results", self.key));
                }
                findings.tally.unknown += u64::from(*outcome == CallOutcome::Unknown);
            }
            EventKind::ApprovalDecided { call, .. } => {
                self.decided.insert(call.as_str().to_owned());
            }
            EventKind::TurnFinished { turn, .. } => {
                findings.tally.turns += 1;
                if !self.finished_turns.insert(turn.number()) {
                    findings.repeated.push(format!("{}: turn {} ended twice", self.key, turn.number()));
                }
            }
            _ => {}
        }
    }

    /// Acknowledged operations are recorded.
    pub(crate) fn check_word(&self, word: &LogLine, findings: &mut Findings) {
        let is_there = match word {
            LogLine::Opened(_) => self.known() > 0,
            LogLine::Sent(_, seq, text) => match self.kind(*seq) {
                Some(EventKind::TurnStarted { input, .. } | EventKind::Queued { input, .. }) => {
                    says(input, text)
                }
                _ => false,
            },
            LogLine::Steered(_, seq, text) => match self.kind(*seq) {
                Some(EventKind::Steered { input }) => says(input, text),
                _ => false,
            },
            LogLine::Decided(_, call) => self.decided.contains(call),
            LogLine::Interrupted(_, turn) => self.finished_turns.contains(turn),
            LogLine::Seen(_, seq, print) => {
                let index = usize::try_from(*seq).unwrap_or(usize::MAX);
                self.shown.get(index).is_some_and(|shown| shown.contains(print))
            }
            _ => true,
        };
        if !is_there {
            let there = match word {
                LogLine::Sent(_, seq, _) | LogLine::Steered(_, seq, _) | LogLine::Seen(_, seq, _) => {
                    self.kind(*seq)
                }
                _ => None,
            };
            findings.lost.push(format!("`{word}`; of {} events; there is {there:?}", self.known()));
        }
    }

    fn kind(&self, seq: u64) -> Option<&EventKind> {
        self.events.get(usize::try_from(seq).ok()?).map(|event| &event.kind)
    }

    /// The next request would be valid.
    pub(crate) fn check_next_request(&self, findings: &mut Findings) {
        let mut state = self.state.clone();
        let recover = Command { at: Timestamp::default(), kind: CommandKind::Recover };
        if let Ok(events) = decide(&state, recover) {
            events.iter().for_each(|event| apply(&mut state, event));
        }
        let checked = match next(&state) {
            Step::CallModel => pairing::check(state.messages()),
            Step::Idle => pairing::check_history(state.messages()),
            _ => Ok(()),
        };
        if let Err(error) = checked {
            findings.invalid.push(format!("{}: what comes next: {error}", self.key));
        }
    }

    /// The lines of the workspace are those of the calls that ran, and none is there twice. Those of the skill are all of one
    /// version.
    pub(crate) fn check_effects(&self, dir: &Path, findings: &mut Findings) -> u64 {
        let workspace = place(dir, &self.key).join("workspace");
        let effects = fs::read_to_string(workspace.join(EFFECTS)).unwrap_or_default();
        let (mut lines, mut versions): (BTreeMap<&str, u32>, BTreeSet<&str>) = Default::default();
        for line in effects.lines() {
            let (line, version) =
                line.split_once('@').map_or((line, None), |(line, version)| (line, Some(version)));
            versions.extend(version);
            *lines.entry(line).or_default() += 1;
        }
        if versions.len() > 1 {
            findings.lost.push(format!("{}: its skill changed: {versions:?}", self.key));
        }
        for (line, count) in &lines {
            if *count > 1 {
                findings.repeated.push(format!("{}: the line `{line}` is there {count} times", self.key));
            }
        }
        for (id, call) in &self.calls {
            let Some(line) = &call.line else { continue };
            let (is_there, may_be_there, must_be_there) = (
                lines.remove(line.as_str()).is_some(),
                call.starts > 0,
                call.ends.first() == Some(&(CallOutcome::Finished, false)),
            );
            if is_there && !may_be_there {
                findings.repeated.push(format!("{}: the call {id} left a line and never ran", self.key));
            }
            if must_be_there && !is_there {
                findings
                    .lost
                    .push(format!("{}: the call {id} ended well, and its line is not there", self.key));
            }
        }
        for line in lines.keys() {
            findings.faults.push(format!("{}: the line `{line}` is of no call", self.key));
        }
        effects.lines().count() as u64
    }

    /// It is still the same.
    pub(crate) fn check_whole(&self, recorded: &[RecordedEvent], findings: &mut Findings) {
        let prints: Vec<u64> =
            recorded.iter().map(|one| fingerprint(&String::from_utf8_lossy(&one.body))).collect();
        if prints != self.prints {
            findings.lost.push(format!(
                "{}: its {} events are not what they were",
                self.key,
                self.prints.len()
            ));
        }
    }

    /// No turn is running, and acknowledged messages have had their turn.
    pub(crate) fn check_settled(&self, findings: &mut Findings) {
        if next(&self.state) != Step::Idle || self.state.queue().len() > 0 {
            findings.lost.push(format!(
                "{}: it rests at {:?} with {} messages in its queue",
                self.key,
                next(&self.state),
                self.state.queue().len()
            ));
        }
        for (id, call) in &self.calls {
            if call.ends.len() != 1 {
                findings.lost.push(format!("{}: the call {id} has {} results", self.key, call.ends.len()));
            }
        }
    }
}

fn says(input: &[Block], text: &str) -> bool {
    matches!(input, [block] if *block == Block::text(text))
}
