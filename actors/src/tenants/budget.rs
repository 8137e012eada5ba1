//! The budget of a tenant's model calls, over all of its sessions. Plain values.

use std::fmt;

use conjure_conversation::Usage;

use super::partial_usage::EstimatedUsage;

/// How many tokens are reserved for a response by default.
const RESERVED_OUTPUT: u64 = 8_192;

/// The period of an allowance. Days and months are calendar days and months in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Period {
    /// No limit in time.
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

/// The price of tokens where the model's client does not report one, in millionths of a dollar for a million tokens: 3
/// dollars are 3,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// The price of input tokens, cached or not.
    pub input: u64,
    /// The price of output tokens.
    pub output: u64,
}

impl Price {
    /// The cost of this many tokens in millionths of a dollar, rounded up.
    #[must_use]
    pub fn of(&self, input: u64, output: u64) -> u64 {
        let cost = u128::from(input)
            .saturating_mul(u128::from(self.input))
            .saturating_add(u128::from(output).saturating_mul(u128::from(self.output)));
        u64::try_from(cost.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// A limit of cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostLimit {
    /// Millionths of a dollar.
    pub micros: u64,
    /// The price of tokens where the model's client does not report one. Estimates of calls use it as well.
    pub price: Price,
}

/// What an allowance limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum BudgetResource {
    Tokens,
    Cost,
}

/// A limit of tokens or cost over a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Allowance {
    /// Tokens, input and output together.
    Tokens {
        /// The period.
        period: Period,
        /// The number of tokens.
        limit: u64,
    },
    /// Cost.
    Cost {
        /// The period.
        period: Period,
        /// The limit in millionths of a dollar.
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

/// An amount of tokens and of cost.
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

/// The budget of a tenant's model calls. Without allowances there is no limit.
///
/// Before a call, its estimate is reserved: one token for each three bytes of the request, and
/// [`Budget::with_reserved_output`] for the response. The call starts if that fits in every allowance. If not, the turn
/// ends with [`Limit::TenantTokens`](conjure_conversation::Limit) or
/// [`Limit::TenantCost`](conjure_conversation::Limit). So all sessions of one process exceed a budget by no more than
/// what running calls use beyond their reservations. Each further process that calls models for the same tenant adds
/// its own running calls.
///
/// A recorded response is charged with its usage, also if its session is deleted later. A call may also be aborted: by an
/// interruption, by the end of its session, or by a failure during its response. An aborted call is charged with:
///
/// - the usage that the service had reported by then, or the reserved input if it had reported none;
/// - one token for each four bytes of output beyond that.
///
/// A call that failed before its response began is free, and so are calls that ran when the process died.
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
    /// A budget without allowances.
    fn default() -> Self {
        Self { allowances: Vec::new(), price: None, reserved_output: RESERVED_OUTPUT }
    }
}

impl Budget {
    /// Sets the number of tokens, input and output, for this period. 0: no call is allowed.
    #[must_use]
    pub fn tokens(self, period: Period, limit: u64) -> Self {
        self.with(Allowance::Tokens { period, limit })
    }

    /// Sets the cost for this period. 0: no call is allowed. The price of the last call of this function applies.
    #[must_use]
    pub fn money(self, period: Period, money: CostLimit) -> Self {
        Self { price: Some(money.price), ..self.with(Allowance::Cost { period, limit: money.micros }) }
    }

    /// Sets how many tokens are reserved for a response: as many as a model may write. The default is 8,192.
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

    /// All allowances.
    #[must_use]
    pub fn allowances(&self) -> &[Allowance] {
        &self.allowances
    }

    /// The cost of a response: as its client reports, or by the budget's price if the client reports none.
    pub(crate) fn amount(&self, usage: &Usage) -> Spend {
        let micros = match self.price {
            Some(price) if usage.cost_micros == 0 => price.of(usage.total_input(), usage.output_tokens),
            _ => usage.cost_micros,
        };
        Spend { tokens: usage.total(), micros }
    }

    /// The cost of a call whose response is not recorded.
    pub(super) fn estimated_amount(&self, used: &EstimatedUsage) -> Spend {
        let micros = self.price.map_or(0, |price| price.of(0, used.unreported_output));
        self.amount(&used.reported).plus(Spend { tokens: used.unreported_output, micros })
    }

    /// The estimated number of tokens of this many bytes.
    pub(crate) const fn tokens_sent(bytes: u64) -> u64 {
        bytes.div_ceil(3)
    }

    /// The estimated cost of a call that sends this many bytes.
    pub(crate) fn estimate(&self, bytes: u64) -> Spend {
        let input = Self::tokens_sent(bytes);
        let micros = self.price.map_or(0, |price| price.of(input, self.reserved_output));
        Spend { tokens: input.saturating_add(self.reserved_output), micros }
    }
}
