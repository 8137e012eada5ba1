//! Programs for the kernel's system call filter: decisions per number, assembled into a search.
//!
//! Each system call that a command makes goes through the program (or through what the kernel remembers of it: numbers
//! that are allowed whatever their arguments are not run through it again). So the numbers are searched by halving, and
//! arguments are looked at only where they decide. Nothing is kept.

/// One instruction of the classic packet filter, as the kernel takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) jump_true: u8,
    pub(crate) jump_false: u8,
    pub(crate) operand: u32,
}

/// Loads a word of what the filter is told.
const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Where the filter is told the number and the architecture of a call.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// It is made.
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

/// Half of an argument. The kernel takes most as 32 bits; of those, the low half is all there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    /// Of the argument with this index.
    Low(u8),
    /// Of the argument with this index.
    High(u8),
}

impl Half {
    /// Both architectures that are known here are little endian.
    const fn at(self) -> u32 {
        match self {
            Self::Low(index) => 16 + 8 * index as u32,
            Self::High(index) => 20 + 8 * index as u32,
        }
    }
}

/// What decides about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing: this is done.
    Always(Action),
    /// An argument.
    If {
        /// What is looked at.
        half: Half,
        /// Which bits of it.
        mask: u32,
        /// What they are, for `then`.
        is: u32,
        then: Box<Decision>,
        otherwise: Box<Decision>,
    },
}

impl Decision {
    pub(super) const ALLOW: Self = Self::Always(Action::Allow);

    /// The call fails with `errno`.
    pub(super) const fn fail(errno: u16) -> Self {
        Self::Always(Action::Fail(errno))
    }

    /// `then`, where the half is one of `values`; else what this decides.
    pub(super) fn unless(self, half: Half, values: &[u32], then: &Self) -> Self {
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

/// What happens to the calls from this number on, up to the next entry's.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    from: u32,
    decision: Decision,
}

/// The program: calls of another architecture than `architecture` kill their process; `decisions` decide about the
/// numbers that they name, `beyond` about those from a number on that is higher than all of them; all other calls are
/// allowed. Numbers must not come twice.
pub(super) fn assemble(
    architecture: u32,
    mut decisions: Vec<(u32, Decision)>,
    beyond: (u32, Decision),
) -> Vec<Instruction> {
    decisions.sort_by_key(|(number, _)| *number);
    let mut entries = vec![Entry { from: 0, decision: Decision::ALLOW }];
    for (number, decision) in decisions {
        // Neighbours with the same decision are one entry; what follows an entry is allowed again.
        push(&mut entries, number, decision);
        push(&mut entries, number + 1, Decision::ALLOW);
    }
    push(&mut entries, beyond.0, beyond.1);

    let mut code = vec![plain(LOAD, ARCHITECTURE_AT)];
    code.push(Instruction { code: JUMP_EQUAL, jump_true: 1, jump_false: 0, operand: architecture });
    code.push(plain(RETURN, Action::Kill.value()));
    code.push(plain(LOAD, NUMBER_AT));
    code.extend(search(&entries));
    code
}

fn push(entries: &mut Vec<Entry>, from: u32, decision: Decision) {
    if entries.last().is_some_and(|last| last.from == from) {
        entries.pop();
    }
    if entries.last().is_none_or(|last| last.decision != decision) {
        entries.push(Entry { from, decision });
    }
}

/// Finds the entry of the number that was loaded, by halving.
fn search(entries: &[Entry]) -> Vec<Instruction> {
    let (below, above) = entries.split_at(entries.len() / 2);
    match (below, above) {
        ([], []) => Decision::ALLOW.assemble(),
        ([], [entry]) => entry.decision.assemble(),
        (_, []) => search(below),
        (_, [first, ..]) => {
            let mut code = Vec::new();
            branch(&mut code, JUMP_AT_LEAST, first.from, &search(above), &search(below));
            code
        }
    }
}

/// Goes to `then` where the test holds, else to `otherwise`; neither comes back. A test jumps over 255 instructions at
/// most, a jump over any number.
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
            // More than the kernel takes at all is refused by it.
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
