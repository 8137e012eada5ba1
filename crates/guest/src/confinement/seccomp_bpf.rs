//! Assembles programs for the kernel's system call filter from a decision per call number.
//!
//! Each system call of a command runs the program, unless the kernel remembers that the number is always allowed.
//! So the program finds the number by binary search, and reads arguments only where they matter. No state is kept.

/// One instruction of classic BPF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) jump_true: u8,
    pub(crate) jump_false: u8,
    pub(crate) operand: u32,
}

/// Loads a word of the filter's input.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// The offsets of the call number and of the architecture in the filter's input.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// What the kernel does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The kernel executes it.
    Allow,
    /// It fails with this error.
    Fail(u16),
    /// The process is killed.
    Kill,
}

impl Action {
    const fn value(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Fail(errno) => 0x0005_0000 | errno as u32,
            Self::Kill => 0x8000_0000,
        }
    }
}

/// Half of a 64-bit argument. The kernel uses only the low half of most arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArgHalf {
    /// Of the argument with this index.
    Low(u8),
    /// Of the argument with this index.
    High(u8),
}

impl ArgHalf {
    /// The offset in the filter's input. All supported architectures are little endian.
    const fn at(self) -> u32 {
        match self {
            Self::Low(index) => 16 + 8 * index as u32,
            Self::High(index) => 20 + 8 * index as u32,
        }
    }
}

/// How to decide about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SyscallDecision {
    /// Always the same action.
    Always(Action),
    /// Depends on an argument.
    If {
        /// The half to compare.
        half: ArgHalf,
        /// The bits to compare.
        mask: u32,
        /// The value for which `then` applies.
        is: u32,
        then: Box<SyscallDecision>,
        otherwise: Box<SyscallDecision>,
    },
}

impl SyscallDecision {
    pub(super) const ALLOW: Self = Self::Always(Action::Allow);

    /// The call fails with `errno`.
    pub(super) const fn fail(errno: u16) -> Self {
        Self::Always(Action::Fail(errno))
    }

    /// Returns `then` where the half is one of `values`, else this decision.
    pub(super) fn unless(self, half: ArgHalf, values: &[u32], then: &Self) -> Self {
        values.iter().fold(self, |otherwise, &is| Self::If {
            half,
            mask: u32::MAX,
            is,
            then: Box::new(then.clone()),
            otherwise: Box::new(otherwise),
        })
    }

    fn assemble(&self) -> Vec<Instruction> {
        let (half, mask, is, then, otherwise) = match self {
            Self::Always(action) => return vec![plain(RETURN, action.value())],
            Self::If { half, mask, is, then, otherwise } => (half, mask, is, then, otherwise),
        };
        let mut code = vec![plain(LOAD, half.at())];
        if *mask != u32::MAX {
            code.push(plain(AND, *mask));
        }
        branch(&mut code, JUMP_EQUAL, *is, &then.assemble(), &otherwise.assemble());
        code
    }
}

/// The decision for all calls from this number up to the next entry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RangeStart {
    from: u32,
    decision: SyscallDecision,
}

/// Assembles the program. Calls of another architecture than `architecture` kill the process. `decisions` apply to
/// single numbers, which must be unique. `beyond` applies to a higher number and all above it. All other calls are
/// allowed.
pub(super) fn assemble(
    architecture: u32,
    mut decisions: Vec<(u32, SyscallDecision)>,
    beyond: (u32, SyscallDecision),
) -> Vec<Instruction> {
    decisions.sort_by_key(|(number, _)| *number);
    let mut entries = vec![RangeStart { from: 0, decision: SyscallDecision::ALLOW }];
    for (number, decision) in decisions {
        // Neighbours with the same decision share one entry. Calls after an entry are allowed again.
        push(&mut entries, number, decision);
        push(&mut entries, number + 1, SyscallDecision::ALLOW);
    }
    push(&mut entries, beyond.0, beyond.1);

    let mut code = vec![plain(LOAD, ARCHITECTURE_AT)];
    code.push(Instruction { code: JUMP_EQUAL, jump_true: 1, jump_false: 0, operand: architecture });
    code.push(plain(RETURN, Action::Kill.value()));
    code.push(plain(LOAD, NUMBER_AT));
    code.extend(search(&entries));
    code
}

fn push(entries: &mut Vec<RangeStart>, from: u32, decision: SyscallDecision) {
    if entries.last().is_some_and(|last| last.from == from) {
        entries.pop();
    }
    if entries.last().is_none_or(|last| last.decision != decision) {
        entries.push(RangeStart { from, decision });
    }
}

/// Finds the entry of the loaded number by binary search.
fn search(entries: &[RangeStart]) -> Vec<Instruction> {
    let (below, above) = entries.split_at(entries.len() / 2);
    match (below, above) {
        ([], []) => SyscallDecision::ALLOW.assemble(),
        ([], [entry]) => entry.decision.assemble(),
        (_, []) => search(below),
        (_, [first, ..]) => {
            let mut code = Vec::new();
            branch(&mut code, JUMP_AT_LEAST, first.from, &search(above), &search(below));
            code
        }
    }
}

/// Continues with `then` if the test holds, else with `otherwise`. Both end the program. A test can skip at most
/// 255 instructions, a jump any number.
fn branch(
    code: &mut Vec<Instruction>,
    test: u16,
    operand: u32,
    then: &[Instruction],
    otherwise: &[Instruction],
) {
    match u8::try_from(then.len()) {
        Ok(length) => code.push(Instruction { code: test, jump_true: 0, jump_false: length, operand }),
        Err(_) => {
            code.push(Instruction { code: test, jump_true: 1, jump_false: 0, operand });
            // The kernel refuses programs that are too long.
            code.push(plain(JUMP, u32::try_from(then.len()).unwrap_or(u32::MAX)));
        }
    }
    code.extend_from_slice(then);
    code.extend_from_slice(otherwise);
}

const fn plain(code: u16, operand: u32) -> Instruction {
    Instruction { code, jump_true: 0, jump_false: 0, operand }
}

#[cfg(test)]
pub(super) mod tests;
