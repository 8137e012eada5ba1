//! Catalogs of skills by name: one of the embedder for all tenants, one of a single tenant; and an edit that reaches
//! the sessions that are opened after it, and none before.
//!
//! ```text
//! cargo run -p examples --example named_registry
//! ```

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use conjure::runtime::{CatalogKey, CatalogName, CatalogSpec};
use conjure::skill::Scope;
use conjure::{
    Clock as _, Config, Response, Runtime, RuntimeOptions, SessionId, SessionSpec, Settings, StopReason,
    SystemClock, TenantId, model_fn,
};

/// Writes a skill.
fn write(dir: &Path, name: &str, description: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(dir.join(name))?;
    let text = format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n");
    std::fs::write(dir.join(name).join("SKILL.md"), text)
}

/// The skills that a session was opened with.
async fn skills(runtime: &Runtime, tenant: &TenantId, id: SessionId) -> Result<String, Box<dyn Error>> {
    let profile = runtime.profile(tenant, id).await?;
    let names: Vec<String> = profile
        .skills
        .iter()
        .map(|skill| format!("{} ({})", skill.name, &skill.digest.to_hex()[..8]))
        .collect();
    Ok(names.join(", "))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    let dir = tempfile::tempdir()?;
    let (common, own) = (dir.path().join("common"), dir.path().join("acme"));
    write(&common, "greeting", "Greets people.")?;
    write(&own, "invoices", "Writes invoices as Acme does.")?;

    let settings = Settings { skill_paths: Some(vec![common]), ..Settings::default() };
    let config = Config::default().with(settings)?;
    let silent = model_fn(|_| async { Ok(Response::new(Vec::new(), StopReason::EndTurn)) });
    let runtime = Runtime::spawn(RuntimeOptions::from(config).model("silent", silent)).await?;
    let (acme, other) = (TenantId::new("acme")?, TenantId::new("other")?);
    let key = CatalogKey::for_tenant(acme.clone(), CatalogName::new("office")?);
    let soon = || SystemClock.deadline(Duration::from_secs(10));
    runtime.registry().register(key.clone(), CatalogSpec::of([Scope::named(&own)]), soon()).await?;

    // Everybody has the catalog of the configuration, and Acme its own.
    let everybodys = runtime.open(SessionSpec::new(other.clone())).await?;
    writeln!(out, "other, by default: {}", skills(&runtime, &other, everybodys.id()).await?)?;
    let first = runtime.open(SessionSpec::new(acme.clone()).catalog("office")).await?;
    writeln!(out, "acme, office: {}", skills(&runtime, &acme, first.id()).await?)?;
    // Nobody else sees it, nor that it is there.
    let refused =
        runtime.open(SessionSpec::new(other).catalog("office")).await.err().ok_or("it was opened")?;
    writeln!(out, "other, office: {refused} ({})", refused.hint().unwrap_or_default())?;

    // An edit is noticed by itself; this waits for it.
    let mut snapshots = runtime.registry().subscribe(&key).ok_or("there is no catalog")?;
    snapshots.borrow_and_update();
    write(&own, "invoices", "Writes invoices as Acme does since May.")?;
    snapshots.changed().await?;
    let second = runtime.open(SessionSpec::new(acme.clone()).catalog("office")).await?;
    writeln!(out, "acme, office, edited: {}", skills(&runtime, &acme, second.id()).await?)?;
    let (before, after) =
        (skills(&runtime, &acme, first.id()).await?, skills(&runtime, &acme, second.id()).await?);
    assert_ne!(before, after, "the first session keeps what it was opened with");
    runtime.shutdown(soon()).await?;
    Ok(())
}
