//! What a tenant's model calls may come to, over all of its sessions. Plain values.

use std::fmt;

use conjure_conversation::Usage;

use super::partial_usage::EstimatedUsage;

/// How many tokens an answer is taken to have until it is there, unless the host says otherwise.
const RESERVED_OUTPUT: u64 = 8_192;

/// Over which time something may be spent. Days and months are those of the calendar, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Period {
    /// All time.
    Total,
    /// Each day.
    Day,
    /// Each month.
    Month,
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Total => "in all",
            Self::Day => "for each day",
            Self::Month => "for each month",
        })
    }
}

/// What tokens cost where a model's client does not say it: millionths of a dollar for a million tokens, so that 3 dollars are
/// 3,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Of what the model reads, from its cache or not.
    pub input: u64,
    /// Of what the model writes.
    pub output: u64,
}

impl Price {
    /// What so many tokens cost, in millionths of a dollar, rounded up.
    #[must_use]
    pub fn of(&self, input: u64, output: u64) -> u64 {
        let cost = u128::from(input)
            .saturating_mul(u128::from(self.input))
            .saturating_add(u128::from(output).saturating_mul(u128::from(self.output)));
        u64::try_from(cost.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// CostLimit that may be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostLimit {
    /// Millionths of a dollar.
    pub micros: u64,
    /// What tokens cost where the model's client does not say it. Also what a call may come to is reckoned by it.
    pub price: Price,
}

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum BudgetResource {
    Tokens,
    Cost,
}

/// How much of something may be spent over a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowance {
    /// Tokens, in and out.
    Tokens {
        /// Over which time.
        period: Period,
        /// How many.
        limit: u64,
    },
    /// CostLimit.
    Cost {
        /// Over which time.
        period: Period,
        /// How many millionths of a dollar.
        limit: u64,
    },
}

impl Allowance {
    pub(crate) const fn parts(&self) -> (BudgetResource, Period, u64) {
        match *self {
            Self::Tokens { period, limit } => (BudgetResource::Tokens, period, limit),
            Self::Cost { period, limit } => (BudgetResource::Cost, period, limit),
        }
    }
}

/// Tokens and money together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spend {
    pub(crate) tokens: u64,
    pub(crate) micros: u64,
}

impl Spend {
    pub(crate) const fn of(&self, resource: BudgetResource) -> u64 {
        match resource {
            BudgetResource::Tokens => self.tokens,
            BudgetResource::Cost => self.micros,
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            micros: self.micros.saturating_add(other.micros),
        }
    }

    pub(crate) const fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            micros: self.micros.saturating_sub(other.micros),
        }
    }
}

/// What a tenant's model calls may come to. Without any allowance, whatever they like.
///
/// Before a call, what it may come to is reserved: a token for each three bytes that are sent, and
/// [`Budget::with_reserved_output`] for the answer. It begins when that fits into what is left of every allowance, and its turn
/// ends with [`Limit::TenantTokens`](conjure_conversation::Limit) or [`Limit::TenantCost`](conjure_conversation::Limit) when
/// it does not. So all sessions of one process together overshoot by no more than the calls that are under way come to beyond
/// what was reserved for them, and each further process that calls models for the same tenant adds what is under way there.
///
/// What a recorded answer used is charged for, also by sessions that are deleted later. A call that is broken off, by an interrupt, the
/// end of its session, or a failure in the midst of its answer, is charged for what its service had said by then that it used (for what was
/// reserved for its input where it had said nothing of that), and for a token for each four bytes that it had shown beyond. What failed
/// before an answer began is free, and so is what was under way when the process died.
///
/// ```
/// use conjure_actors::tenants::{Budget, CostLimit, Period, Price};
///
/// let price = Price { input: 3_000_000, output: 15_000_000 };
/// let budget = Budget::default()
///     .tokens(Period::Day, 2_000_000)
///     .money(Period::Month, CostLimit { micros: 50_000_000, price });
/// assert_eq!(budget.allowances().len(), 2);
/// // A million tokens in, and a thousand out.
/// assert_eq!(price.of(1_000_000, 1_000), 3_015_000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    allowances: Vec<Allowance>,
    price: Option<Price>,
    reserved_output: u64,
}

impl Default for Budget {
    /// Without any allowance.
    fn default() -> Self {
        Self { allowances: Vec::new(), price: None, reserved_output: RESERVED_OUTPUT }
    }
}

impl Budget {
    /// With so many tokens, in and out, over this time: instead of what was said of them and this time before. 0: none ever.
    #[must_use]
    pub fn tokens(self, period: Period, limit: u64) -> Self {
        self.with(Allowance::Tokens { period, limit })
    }

    /// With so much money over this time: instead of what was said of it and this time before. 0: none ever. The last price that
    /// is named counts.
    #[must_use]
    pub fn money(self, period: Period, money: CostLimit) -> Self {
        Self { price: Some(money.price), ..self.with(Allowance::Cost { period, limit: money.micros }) }
    }

    /// So many tokens are reserved for an answer until it is there: as many as a model is allowed to write. 8,192 unless this is
    /// called.
    #[must_use]
    pub const fn with_reserved_output(mut self, tokens: u64) -> Self {
        self.reserved_output = tokens;
        self
    }

    fn with(mut self, allowance: Allowance) -> Self {
        let (resource, period, _) = allowance.parts();
        self.allowances.retain(|other| {
            let (other, when, _) = other.parts();
            (other, when) != (resource, period)
        });
        self.allowances.push(allowance);
        self
    }

    /// What may be spent.
    #[must_use]
    pub fn allowances(&self) -> &[Allowance] {
        &self.allowances
    }

    /// What an answer cost: as its client says, or by the price of the budget where the client knows none.
    pub(crate) fn amount(&self, usage: &Usage) -> Spend {
        let micros = match self.price {
            Some(price) if usage.cost_micros == 0 => price.of(usage.total_input(), usage.output_tokens),
            _ => usage.cost_micros,
        };
        Spend { tokens: usage.total(), micros }
    }

    /// What a call that was broken off comes to.
    pub(super) fn part(&self, used: &EstimatedUsage) -> Spend {
        let micros = self.price.map_or(0, |price| price.of(0, used.more_output));
        self.amount(&used.said).plus(Spend { tokens: used.more_output, micros })
    }

    /// For how many tokens so many bytes are taken.
    pub(crate) const fn tokens_sent(bytes: u64) -> u64 {
        bytes.div_ceil(3)
    }

    /// What a call may come to that sends so many bytes.
    pub(crate) fn estimate(&self, bytes: u64) -> Spend {
        let input = Self::tokens_sent(bytes);
        let micros = self.price.map_or(0, |price| price.of(input, self.reserved_output));
        Spend { tokens: input.saturating_add(self.reserved_output), micros }
    }
}
