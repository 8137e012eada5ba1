//! The assembled programs, run by an interpreter, against the decisions that they were assembled from.

use proptest::prelude::*;

use super::*;

/// A call, as a filter is told of it.
#[derive(Debug, Clone, Copy)]
pub(in crate::confinement) struct Call {
    pub(in crate::confinement) number: u32,
    pub(in crate::confinement) architecture: u32,
    pub(in crate::confinement) arguments: [u64; 6],
}

impl Call {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.number.to_le_bytes(), self.architecture.to_le_bytes()].concat();
        bytes.extend([0; 8]);
        bytes.extend(self.arguments.iter().flat_map(|argument| argument.to_le_bytes()));
        bytes
    }
}

/// Runs a program as the kernel does: forwards only, and to a return. What it returns, and after how many instructions.
pub(in crate::confinement) fn run(program: &[Instruction], call: &Call) -> (Action, usize) {
    assert!(program.len() <= 4096, "the kernel takes no more");
    let data = call.bytes();
    let mut accumulator = 0;
    let mut at = 0;
    for steps in 1.. {
        let Instruction { code, jump_true, jump_false, operand } = program[at];
        at += 1;
        let jump = |holds: bool| usize::from(if holds { jump_true } else { jump_false });
        match code {
            LOAD => {
                let from = operand as usize;
                assert!(from.is_multiple_of(4) && from + 4 <= data.len(), "the kernel refuses it");
                accumulator = u32::from_le_bytes(data[from..from + 4].try_into().expect("four"));
            }
            AND => accumulator &= operand,
            JUMP => at += operand as usize,
            JUMP_EQUAL => at += jump(accumulator == operand),
            JUMP_AT_LEAST => at += jump(accumulator >= operand),
            RETURN => {
                let action = match (operand & 0xffff_0000, operand & 0xffff) {
                    (0x7fff_0000, 0) => Action::Allow,
                    (0x0005_0000, errno) => Action::Fail(errno.try_into().expect("16 bits")),
                    (0x8000_0000, 0) => Action::Kill,
                    other => panic!("no action that is used here: {other:x?}"),
                };
                return (action, steps);
            }
            other => panic!("no instruction that is used here: {other:#x}"),
        }
    }
    unreachable!("a program ends")
}

fn decide(decision: &SyscallDecision, arguments: &[u64; 6]) -> Action {
    match decision {
        SyscallDecision::Always(action) => *action,
        SyscallDecision::If { half, mask, is, then, otherwise } => {
            let word = match half {
                ArgHalf::Low(index) => arguments[usize::from(*index)] & 0xffff_ffff,
                ArgHalf::High(index) => arguments[usize::from(*index)] >> 32,
            };
            let holds = word & u64::from(*mask) == u64::from(*is);
            decide(if holds { then } else { otherwise }, arguments)
        }
    }
}

const ARCHITECTURE: u32 = 0xc000_003e;

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![Just(Action::Allow), Just(Action::Kill), (1_u16..200).prop_map(Action::Fail)]
}

/// Few values, so that tests hold often.
fn value() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..3, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn half() -> impl Strategy<Value = ArgHalf> {
    (0_u8..6, any::<bool>())
        .prop_map(|(index, is_low)| if is_low { ArgHalf::Low(index) } else { ArgHalf::High(index) })
}

fn decision() -> impl Strategy<Value = SyscallDecision> {
    let leaf = action().prop_map(SyscallDecision::Always);
    // Deep enough for jumps of more than 255 instructions.
    leaf.prop_recursive(9, 600, 2, |inner| {
        let mask = prop_oneof![3 => Just(u32::MAX), 1 => any::<u32>()];
        (half(), mask, value(), inner.clone(), inner).prop_map(|(half, mask, is, then, otherwise)| {
            SyscallDecision::If { half, mask, is, then: Box::new(then), otherwise: Box::new(otherwise) }
        })
    })
}

fn argument() -> impl Strategy<Value = u64> {
    (value(), value()).prop_map(|(low, high)| u64::from(high) << 32 | u64::from(low))
}

proptest! {
    #[test]
    fn a_program_decides_as_its_decisions_say(
        decisions in prop::collection::btree_map(0_u32..60, decision(), 0..12),
        beyond in (60_u32..70, action()),
        arguments in prop::array::uniform6(argument()),
    ) {
        let list = decisions.clone().into_iter().collect();
        let program = assemble(ARCHITECTURE, list, (beyond.0, SyscallDecision::Always(beyond.1)));
        prop_assume!(program.len() <= 4096);
        for number in (0..75).chain([0x4000_0000, u32::MAX]) {
            let expected = match decisions.get(&number) {
                _ if number >= beyond.0 => beyond.1,
                Some(decision) => decide(decision, &arguments),
                None => Action::Allow,
            };
            let call = Call { number, architecture: ARCHITECTURE, arguments };
            prop_assert_eq!(run(&program, &call).0, expected, "number {}", number);
            let foreign = Call { architecture: 0x4000_0003, ..call };
            prop_assert_eq!(run(&program, &foreign).0, Action::Kill);
        }
    }
}

#[test]
fn a_jump_may_be_longer_than_255_instructions() {
    // Halving makes the second half, which is jumped over, long.
    let decisions = (0..2000).map(|number| (2 * number, SyscallDecision::fail(1))).take(700).collect();
    let program = assemble(ARCHITECTURE, decisions, (5000, SyscallDecision::fail(38)));
    assert!(program.iter().any(|instruction| instruction.code == JUMP), "there is a long jump");
    for number in 0..1500 {
        let call = Call { number, architecture: ARCHITECTURE, arguments: [0; 6] };
        let expected = if number < 1400 && number % 2 == 0 { Action::Fail(1) } else { Action::Allow };
        let (action, steps) = run(&program, &call);
        assert_eq!(action, expected, "number {number}");
        assert!(steps < 30, "a search, not a list: {steps}");
    }
}
