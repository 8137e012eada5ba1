//! What the programs share that serve a fake: their options, and the line that they print.

use std::error::Error;
use std::io::Write as _;

/// Names and values.
type Options = Vec<(String, String)>;

/// The options of the command line, as pairs of a name and a value. Without any, and with `--help`, the usage is printed.
pub(crate) fn options(usage: &str) -> Result<Option<Options>, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() || arguments.iter().any(|argument| argument == "--help") {
        std::io::stdout().write_all(usage.as_bytes())?;
        return Ok(None);
    }
    let pair = |pair: &[String]| match pair {
        [name, value] => Ok((name.clone(), value.clone())),
        _ => Err(format!("`{}` needs a value\n\n{usage}", pair[0]).into()),
    };
    arguments.chunks(2).map(pair).collect::<Result<_, _>>().map(Some)
}

/// Prints the base URL of a fake, which serves until the program is killed.
pub(crate) async fn serve(base_url: &str) -> Result<(), Box<dyn Error>> {
    // A reader may be waiting for this line, and it may be a pipe.
    writeln!(std::io::stdout(), "{base_url}")?;
    std::io::stdout().flush()?;
    std::future::pending().await
}
