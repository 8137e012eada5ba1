//! Prints the usage and the cost of a run.

use conjure::Usage;

use crate::cli::terminal::{Style, Terminal};

/// Returns the models that were used and have no known price.
pub(crate) type PriceCheck = Box<dyn Fn() -> Vec<String> + Send + Sync>;

/// Prints the usage and the cost of the model calls on standard error.
pub(crate) fn print_usage(usage: &Usage, price_check: &PriceCheck, terminal: &Terminal) {
    if usage.total() == 0 {
        return;
    }
    terminal.styled(Style::Dim, &usage_line(usage, &price_check()));
}

fn usage_line(usage: &Usage, unpriced: &[String]) -> String {
    let mut cache = Vec::new();
    if usage.cache_read_input_tokens > 0 {
        cache.push(format!("{} from the cache", usage.cache_read_input_tokens));
    }
    if usage.cache_creation_input_tokens > 0 {
        cache.push(format!("{} written to it", usage.cache_creation_input_tokens));
    }
    let cache = if cache.is_empty() { String::new() } else { format!(" ({})", cache.join(", ")) };
    let without = format!("the price of {} is not known", unpriced.join(", "));
    let cost = match (unpriced, usage.cost_micros) {
        ([], micros) => dollars(micros),
        (_, 0) => without,
        (_, micros) => format!("{} and more; {without}", dollars(micros)),
    };
    format!("used {} tokens in{cache}, {} out; {cost}", usage.total_input(), usage.output_tokens)
}

/// Formats millionths of a dollar, rounded up to a hundredth of a cent.
fn dollars(micros: u64) -> String {
    let parts = micros.div_ceil(100);
    format!("${}.{:04}", parts / 10_000, parts % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_dollars_are_reported() {
        let usage = Usage {
            input_tokens: 10,
            output_tokens: 5,
            cache_creation_input_tokens: 20,
            cache_read_input_tokens: 300,
            cost_micros: 1_234_501,
        };
        let all = "used 330 tokens in (300 from the cache, 20 written to it), 5 out; $1.2346";
        assert_eq!(usage_line(&usage, &[]), all);
        let models = ["a".to_owned(), "b".to_owned()];
        assert_eq!(usage_line(&usage, &models), format!("{all} and more; the price of a, b is not known"));
        let none = Usage::default();
        assert_eq!(usage_line(&none, &[]), "used 0 tokens in, 0 out; $0.0000");
        assert_eq!(usage_line(&none, &models[..1]), "used 0 tokens in, 0 out; the price of a is not known");
    }
}
