//! Where a session stands: its active skills and its grants, changed by recorded events alone.

use conjure_base::{Digest, Timestamp};
use conjure_conversation::{
    CallOutcome, CommandKind, Decision, Event, Grant, GrantScope, PinnedSkill, Rejection, SessionEvent,
    SessionState, StartedCall, ToolResult, apply,
};

use crate::support::{accept_response, calls, id, project, reload, start, start_call, submit};

/// A machine without a driver, and what it recorded.
#[derive(Default)]
struct SessionFixture {
    state: SessionState,
    events: Vec<Event>,
}

impl SessionFixture {
    /// One turn that has called these tools.
    fn called(ids: &[&str]) -> Self {
        let mut fixture = Self::default();
        fixture.submit(start("go")).unwrap();
        fixture.call(ids);
        fixture
    }

    fn submit(&mut self, kind: CommandKind) -> Result<(), Rejection> {
        self.events.extend(submit(&mut self.state, kind)?);
        Ok(())
    }

    fn call(&mut self, ids: &[&str]) {
        self.submit(start_call()).unwrap();
        let named: Vec<(&str, &str)> = ids.iter().map(|id| ("load", *id)).collect();
        self.submit(accept_response(&self.state, calls(&named))).unwrap();
    }

    fn begin(&mut self, call: &str) {
        let calls = vec![StartedCall { call: id(call), idempotent: false }];
        self.submit(CommandKind::StartTools { calls }).unwrap();
    }

    fn finish(&mut self, call: &str, active: &[PinnedSkill]) -> Result<(), Rejection> {
        let result = ToolResult::text_result(&id(call), "so").with_active_skills(active.to_vec());
        self.submit(CommandKind::FinishTool { result, outcome: CallOutcome::Finished })
    }

    /// Calls a tool after which these skills are active.
    fn activate(&mut self, call: &str, active: &[PinnedSkill]) {
        self.call(&[call]);
        self.begin(call);
        self.finish(call, active).unwrap();
    }

    fn grant(&mut self, call: &str, rule: &str, scope: GrantScope) {
        self.submit(CommandKind::RequestApproval { call: id(call), reason: "may it?".to_owned() }).unwrap();
        let decision = Decision::Grant { grant: Grant { rule: rule.to_owned(), scope } };
        self.submit(CommandKind::Decide { call: id(call), decision }).unwrap();
    }

    fn active(&self) -> Vec<&str> {
        self.state.view().active_skills().iter().map(|skill| skill.name.as_str()).collect()
    }

    fn rules(&self) -> Vec<&str> {
        self.state.view().grants().map(|grant| grant.rule.as_str()).collect()
    }

    fn told(&self) -> Vec<String> {
        let session = conjure_base::SessionId::from_bits(7);
        project(session, 0, &self.events).iter().map(SessionEvent::to_line).collect()
    }
}

fn skill(name: &str, content: &str) -> PinnedSkill {
    PinnedSkill { name: name.to_owned(), digest: Digest::of_bytes(content.as_bytes()) }
}

#[test]
fn calls_of_one_answer_are_judged_by_what_was_active_when_it_came() {
    let mut fixture = SessionFixture::called(&["toolu_1", "toolu_2"]);
    fixture.begin("toolu_1");
    fixture.finish("toolu_1", &[skill("x", "1")]).unwrap();
    assert_eq!(fixture.active(), ["x"]);
    assert!(fixture.state.view().skills_at_response().is_empty());
    fixture.begin("toolu_2");
    fixture.finish("toolu_2", &[skill("x", "1")]).unwrap();
    fixture.call(&["toolu_3"]);
    assert_eq!(fixture.state.view().skills_at_response(), [skill("x", "1")]);
}

#[test]
fn a_result_makes_skills_active_once_and_in_its_order() {
    let mut fixture = SessionFixture::called(&["a", "b"]);
    fixture.begin("a");
    fixture.begin("b");
    fixture.finish("b", &[skill("x", "1")]).unwrap();
    fixture.finish("a", &[skill("y", "1"), skill("x", "1")]).unwrap();
    assert_eq!(fixture.active(), ["y", "x"]);
    assert_eq!(fixture.state.view().active_skill("x"), Some(&skill("x", "1")));
    assert_eq!(fixture.state.view().active_skill("z"), None);
}

#[test]
fn results_that_come_late_or_twice_change_nothing() {
    let mut fixture = SessionFixture::called(&["a", "b"]);
    fixture.begin("a");
    fixture.begin("b");
    fixture.finish("a", &[skill("x", "1")]).unwrap();
    let before = fixture.state.clone();
    for call in ["a", "nobody"] {
        assert!(matches!(fixture.finish(call, &[]), Err(Rejection::NoOpenCall { .. })));
    }
    // Also where such an event stands in the record of another library.
    for call in ["a", "nobody"] {
        let result = ToolResult::text_result(&id(call), "so").with_active_skills(vec![skill("z", "1")]);
        let kind = conjure_conversation::EventKind::ToolFinished { result, outcome: CallOutcome::Finished };
        apply(&mut fixture.state, &Event { at: Timestamp::default(), kind });
        assert_eq!(fixture.state.view(), before.view(), "{call}");
    }
    assert_eq!(fixture.active(), ["x"]);
}

#[test]
fn a_call_with_an_unknown_outcome_changes_nothing() {
    let mut fixture = SessionFixture::called(&["a"]);
    fixture.begin("a");
    fixture.finish("a", &[skill("x", "1")]).unwrap();
    fixture.call(&["b"]);
    fixture.begin("b");
    fixture.submit(CommandKind::Recover).unwrap();
    assert!(fixture.state.open_calls().is_empty());
    assert!(matches!(fixture.finish("b", &[]), Err(Rejection::NoOpenCall { .. })));
    assert_eq!(fixture.active(), ["x"]);
}

#[test]
fn a_grant_of_a_skill_holds_for_one_content_while_that_is_active() {
    let mut fixture = SessionFixture::called(&["a"]);
    fixture.begin("a");
    fixture.finish("a", &[skill("x", "1"), skill("y", "1")]).unwrap();
    fixture.call(&["b", "c", "d"]);
    fixture.grant("b", "view", GrantScope::Session);
    fixture.grant("c", "bash_tool(git:*)", GrantScope::Skill(skill("x", "1")));
    // The same again adds nothing.
    fixture.grant("d", "view", GrantScope::Session);
    assert_eq!(fixture.rules(), ["view", "bash_tool(git:*)"]);
    fixture
        .submit(CommandKind::Interrupt { cause: conjure_conversation::InterruptCause::Cancelled })
        .unwrap();
    fixture.submit(start("on")).unwrap();

    // While it is not loaded, it does not hold.
    fixture.activate("e", &[skill("y", "1")]);
    assert_eq!(fixture.rules(), ["view"]);
    fixture.activate("f", &[skill("y", "1"), skill("x", "1")]);
    assert_eq!(fixture.rules(), ["view", "bash_tool(git:*)"]);
    // Another content ends it for good.
    fixture.activate("g", &[skill("y", "1"), skill("x", "2")]);
    assert_eq!(fixture.rules(), ["view"]);
    fixture.activate("h", &[skill("x", "1")]);
    assert_eq!(fixture.rules(), ["view"]);

    assert_eq!(reload(&fixture.events), fixture.state);
}

#[test]
fn skills_and_grants_have_session_events() {
    let mut fixture = SessionFixture::called(&["a", "b"]);
    fixture.grant("a", "bash_tool(git:*)", GrantScope::Skill(skill("x", "1")));
    fixture.begin("a");
    fixture.finish("a", &[skill("x", "1")]).unwrap();
    let digest = Digest::of_bytes(b"1");
    let grant = format!(
        r#""grant":{{"rule":"bash_tool(git:*)","scope":{{"skill":{{"name":"x","digest":"{digest}"}}}}}}}}"#
    );
    let call = format!(r#""tool_use_id":"sevt_{:032x}_ca","call_id":"a""#, 7);
    let told = fixture.told();
    let said = |what: &str| {
        let line = told.iter().find(|line| line.contains(&format!(r#""type":"{what}""#))).unwrap();
        line.split_once(r#","type":"#).unwrap().1.to_owned()
    };
    assert_eq!(
        said("user.tool_confirmation"),
        format!(r#""user.tool_confirmation",{call},"result":"allow",{grant}"#)
    );
    assert_eq!(said("session.grant_given"), format!(r#""session.grant_given",{call},{grant}"#));
    let changed = format!(r#""session.skills_changed",{call},"active_skills":[{{"name":"x","digest":""#);
    assert_eq!(said("session.skills_changed"), format!("{changed}{digest}\"}}]}}"));
}
