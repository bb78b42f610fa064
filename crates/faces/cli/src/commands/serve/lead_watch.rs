//! Watches the handle on the shared store of a server that leads: whether it has ended, and whether the lead is in doubt.

use std::sync::Arc;
use std::time::Duration;

use millrace_server::{Deposer, LeadDoubter};
use millrace_stores::JournalStore;
use tokio::task::spawn_blocking;

/// How often the server looks.
const LOOK: Duration = Duration::from_millis(100);

/// Runs as long as the server leads. Never returns: a server that is deposed ends by itself.
pub(super) async fn watch(store: Arc<JournalStore>, deposer: Deposer, doubter: LeadDoubter) {
    let lead_timeout_ms = store.settings().lead_timeout_ms;
    loop {
        let looked = store.clone();
        if let Ok(Some(ended)) = spawn_blocking(move || looked.wait_for_end(LOOK)).await {
            deposer.depose(ended);
            break;
        }
        doubter.tell(store.status().lead_doubt(lead_timeout_ms));
    }
    std::future::pending::<()>().await;
}
