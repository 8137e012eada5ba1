//! The name of the service behind a host, for telemetry (`gen_ai.provider.name`).

/// Hosts with their own provider name. All other hosts are only known to speak OpenAI's APIs.
const PROVIDERS: [(&str, &str); 9] = [
    ("openai.azure.com", "azure.ai.openai"),
    ("groq.com", "groq"),
    ("mistral.ai", "mistral_ai"),
    ("deepseek.com", "deepseek"),
    ("moonshot.ai", "moonshot_ai"),
    ("x.ai", "x_ai"),
    ("perplexity.ai", "perplexity"),
    ("openrouter.ai", "openrouter"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
];

/// The name of the service at this host.
pub(crate) fn provider_name(host: &str) -> &'static str {
    let is_subdomain =
        |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    PROVIDERS.iter().find(|(domain, _)| is_subdomain(domain)).map_or("openai", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::provider_name;

    #[test]
    fn hosts_map_to_provider_names() {
        for (host, name) in [
            ("api.openai.com", "openai"),
            ("my-resource.openai.azure.com", "azure.ai.openai"),
            ("api.x.ai", "x_ai"),
            ("openrouter.ai", "openrouter"),
            ("notx.ai", "openai"),
            ("127.0.0.1", "openai"),
        ] {
            assert_eq!(provider_name(host), name, "{host}");
        }
    }
}
