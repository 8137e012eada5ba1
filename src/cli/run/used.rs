//! What a run consumed, told at its end.

use conjure::Usage;

use crate::cli::terminal::{Style, Terminal};

/// How what a model consumes is told: which of the models that answered have no known price.
pub(crate) type Tariff = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Says on standard error what the model calls consumed and cost, where the service told it.
pub(super) fn report(usage: &Usage, tariff: &Tariff, terminal: &Terminal) {
    if usage.total() == 0 {
        return;
    }
    terminal.styled(Style::Dim, &told(usage, &tariff()));
}

fn told(usage: &Usage, unpriced: &[String]) -> String {
    let mut cache = Vec::new();
    if usage.cache_read_input_tokens > 0 {
        cache.push(format!("{} from the cache", usage.cache_read_input_tokens));
    }
    if usage.cache_creation_input_tokens > 0 {
        cache.push(format!("{} written to it", usage.cache_creation_input_tokens));
    }
    let cache = if cache.is_empty() { String::new() } else { format!(" ({})", cache.join(", ")) };
    let without = format!("no price of {} is known", unpriced.join(", "));
    let cost = match (unpriced, usage.cost_micros) {
        ([], micros) => dollars(micros),
        (_, 0) => without,
        (_, micros) => format!("{} and more; {without}", dollars(micros)),
    };
    format!("used {} tokens in{cache}, {} out; {cost}", usage.total_input(), usage.output_tokens)
}

/// Millionths of a dollar in dollars, rounded up to a hundredth of a cent.
fn dollars(micros: u64) -> String {
    let parts = micros.div_ceil(100);
    format!("${}.{:04}", parts / 10_000, parts % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_dollars_are_told() {
        let usage = Usage {
            input_tokens: 10,
            output_tokens: 5,
            cache_creation_input_tokens: 20,
            cache_read_input_tokens: 300,
            cost_micros: 1_234_501,
        };
        let all = "used 330 tokens in (300 from the cache, 20 written to it), 5 out; $1.2346";
        assert_eq!(told(&usage, &[]), all);
        let models = ["a".to_owned(), "b".to_owned()];
        assert_eq!(told(&usage, &models), format!("{all} and more; no price of a, b is known"));
        let none = Usage::default();
        assert_eq!(told(&none, &[]), "used 0 tokens in, 0 out; $0.0000");
        assert_eq!(told(&none, &models[..1]), "used 0 tokens in, 0 out; no price of a is known");
    }
}
