//! A server as one argument of a command line: `NAME=COMMAND` or `NAME=URL`.

use std::collections::BTreeMap;

use super::spec::{
    AddressScope, HttpServer, McpServerName, McpServerSpec, McpTransport, ServerPlace, StdioServer,
};

impl McpServerSpec {
    /// Parses `NAME=COMMAND` or `NAME=URL`.
    ///
    /// The words of a command are separated by spaces. Quotes and `\` keep them together, as in a shell; no other shell syntax is
    /// supported. The server is required, because the user named it explicitly.
    ///
    /// # Errors
    /// The mistake, as text.
    ///
    /// ```
    /// use conjure_mcp::{McpServerSpec, McpTransport};
    ///
    /// let server = McpServerSpec::from_argument("time=uvx mcp-server-time --local-timezone 'Europe/Berlin'")?;
    /// let McpTransport::Stdio(program) = server.transport else { panic!("it is a program") };
    /// assert_eq!(program.args, ["mcp-server-time", "--local-timezone", "Europe/Berlin"]);
    /// # Ok::<(), String>(())
    /// ```
    pub fn from_argument(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("`NAME=COMMAND` or `NAME=URL` is needed, such as `git=uvx mcp-server-git`")?;
        let name = McpServerName::new(name)?;
        let transport = if value.starts_with("http://") || value.starts_with("https://") {
            let (url, headers) = (value.to_owned(), BTreeMap::new());
            McpTransport::Http(HttpServer { url, headers, addresses: AddressScope::AsWritten })
        } else {
            let mut words = words(value)?.into_iter();
            let command = words.next().ok_or("the command is empty")?;
            McpTransport::Stdio(StdioServer {
                command,
                args: words.collect(),
                env: BTreeMap::new(),
                place: ServerPlace::Sandbox,
                network: None,
            })
        };
        Ok(Self { required: true, ..Self::new(name, transport) })
    }
}

/// Splits a command into words.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (_, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\\', None | Some('"')) => {
                let next = chars.next().ok_or("it ends in `\\`")?;
                word.get_or_insert_default().push(next);
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    match quote {
        Some(open) => Err(format!("a quote {open} is not closed")),
        None => {
            words.extend(word);
            Ok(words)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotes_keep_words_together() {
        for (text, expected) in [
            ("a  b", vec!["a", "b"]),
            (r#"a "b c" 'd "e'"#, vec!["a", "b c", "d \"e"]),
            (r#"a\ b "c\"d" '\'"#, vec!["a b", "c\"d", "\\"]),
            (r#"--x="y z" ''"#, vec!["--x=y z", ""]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        assert!(words("'a").unwrap_err().contains("not closed"));
        assert!(words("a\\").is_err());
    }

    #[test]
    fn a_url_is_a_service_and_mistakes_are_told() {
        let server = McpServerSpec::from_argument("x=https://mcp.example.com/mcp?a=b").unwrap();
        assert!(matches!(server.transport, McpTransport::Http(http) if http.url.ends_with("?a=b")));
        for (text, part) in
            [("x", "NAME=COMMAND"), ("x= ", "empty"), ("=a", "cannot be the name"), ("x='", "closed")]
        {
            let error = McpServerSpec::from_argument(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn plain_words_come_back(parts in proptest::collection::vec("[a-z0-9=/.-]{1,8}", 0..6)) {
            prop_assert_eq!(words(&parts.join(" ")).unwrap(), parts);
        }
    }
}
