//! `Syscall.Describe` in both its forms (one type, or schemas of many), and `Syscall.List`.

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::{JsonText, OsFault};
use millrace_router::{Branch, Manifest, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::capabilities::context::Context;
use crate::kernel_thread::inbox::KernelEnded;

#[derive(Deserialize)]
struct Asks {
    name: Option<String>,
    capabilities: Option<Vec<String>>,
    after: Option<String>,
}

/// `page_bytes` is how much fits into one answer: the client asks for the rest with `after`.
pub(super) async fn describe(ctx: &Context, page_bytes: usize) -> Result<JsonText, OsFault> {
    let asks: Asks = ctx.data()?;
    let Some(name) = asks.name else {
        let wanted: BTreeSet<String> = asks.capabilities.unwrap_or_default().into_iter().collect();
        let schemas =
            ctx.kernel().with_router(move |router| schemas(router, &wanted)).await.map_err(ended)?;
        return ctx.reply(&page(schemas, asks.after.as_deref(), page_bytes));
    };
    let asked = name.clone();
    let found = ctx.kernel().with_router(move |router| one(router, &asked)).await.map_err(ended)?;
    let found =
        found.ok_or_else(|| OsFault::new(404, format!("Capability '{name}' not found in registry.")))?;
    ctx.reply(&found)
}

pub(super) async fn list(ctx: &Context) -> Result<JsonText, OsFault> {
    let types = |router: &Router| {
        requests(router).map(|(_, branch)| branch.ty.as_str().to_owned()).collect::<BTreeSet<_>>()
    };
    let syscalls = ctx.kernel().with_router(types).await.map_err(ended)?;
    ctx.reply(&json!({ "syscalls": syscalls }))
}

/// The schemas of one page, in the order of types. A page has at least one, so that paging comes to an end.
fn page(schemas: BTreeMap<String, Value>, after: Option<&str>, page_bytes: usize) -> Value {
    let (mut shown, mut bytes, mut next) = (serde_json::Map::new(), 0, None::<String>);
    let mut rest = schemas.into_iter().filter(|(ty, _)| after.is_none_or(|after| ty.as_str() > after));
    for (ty, schema) in rest.by_ref() {
        bytes += ty.len() + schema.to_string().len() + 4;
        if bytes > page_bytes && !shown.is_empty() {
            next = shown.keys().next_back().cloned();
            break;
        }
        shown.insert(ty, schema);
    }
    match next {
        Some(next) => json!({ "schemas": shown, "next": next }),
        None => json!({ "schemas": shown }),
    }
}

/// The schemas of the wanted types and capabilities; unknown names are left out.
fn schemas(router: &Router, wanted: &BTreeSet<String>) -> BTreeMap<String, Value> {
    let all = wanted.contains("*");
    requests(router)
        .filter(|(of, branch)| all || wanted.contains(&*of.name) || wanted.contains(branch.ty.as_str()))
        .map(|(of, branch)| (branch.ty.as_str().to_owned(), branch.describe_in_schemas(of)))
        .collect()
}

fn one(router: &Router, ty: &str) -> Option<Value> {
    requests(router).find(|(_, branch)| branch.ty.as_str() == ty).map(|(of, branch)| branch.describe(of))
}

fn requests(router: &Router) -> impl Iterator<Item = (&Manifest, &Branch)> {
    router.directory().flat_map(|(_, manifest)| {
        let requests = manifest.inbound.iter().filter(|branch| branch.kind.is_request());
        requests.map(|branch| (&**manifest, branch))
    })
}

fn ended(ended: KernelEnded) -> OsFault {
    OsFault::new(503, ended.to_string())
}
