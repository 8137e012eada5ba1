//! Expands `${VAR}` and `${VAR:-default}` in the texts of `.mcp.json`.

/// Looks up a variable of the host's environment by name.
pub type VariableLookup<'l> = &'l dyn Fn(&str) -> Option<String>;

/// Replaces the variables in a text. A variable that is not set and has no default stays as written, as in other programs that read the
/// file.
pub(super) fn expand(text: &str, lookup: VariableLookup<'_>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        expanded.push_str(before);
        let Some(end) = from.find('}') else {
            rest = from;
            break;
        };
        let (written, after) = from.split_at(end + 1);
        let inner = &written[2..end];
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        match lookup(name).or_else(|| default.map(str::to_owned)).filter(|_| is_name(name)) {
            Some(value) => expanded.push_str(&value),
            None => expanded.push_str(written),
        }
        rest = after;
    }
    expanded.push_str(rest);
    expanded
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn variables_and_defaults_are_replaced_and_unknown_ones_stay() {
        let lookup = |name: &str| (name == "TOKEN").then(|| "s3cret".to_owned());
        for (text, expected) in [
            ("${TOKEN}", "s3cret"),
            ("Bearer ${TOKEN}!", "Bearer s3cret!"),
            ("${TOKEN:-x}${OTHER:-y}", "s3crety"),
            ("${OTHER}", "${OTHER}"),
            ("${OTHER:-}", ""),
            ("$TOKEN ${TOKEN", "$TOKEN ${TOKEN"),
            ("${}", "${}"),
            ("${A B:-x}", "${A B:-x}"),
            ("ä${TOKEN}ö", "äs3cretö"),
        ] {
            assert_eq!(expand(text, &lookup), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_expanded(text in ".{0,64}") {
            let nothing = |_: &str| None;
            if !text.contains(":-") {
                prop_assert_eq!(expand(&text, &nothing), text);
            } else {
                expand(&text, &nothing);
            }
        }
    }
}
