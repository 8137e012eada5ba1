//! The options of `conjure models`.

use crate::cli::args::shared::format::Format;

const MODELS_EXAMPLES: &str = "\
Examples:
  conjure models
  conjure models ollama:
  conjure models local --format json

Without a name it lists the configured models (`[models.NAME]`) and the services that need no
configuration, and asks each of them whether it answers. With a name it lists what that service
has.";

#[derive(Debug, clap::Args)]
#[command(after_help = MODELS_EXAMPLES)]
pub(crate) struct ModelsArgs {
    /// The service whose models are listed: a configured name, or a vendor such as `ollama:`.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The output format.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}
