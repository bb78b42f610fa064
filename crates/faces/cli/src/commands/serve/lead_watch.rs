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
    // How many records this server had placed when its doubt began.
    let mut placed_before_doubt: Option<u64> = None;
    loop {
        let looked = store.clone();
        if let Ok(Some(ended)) = spawn_blocking(move || looked.wait_for_end(LOOK)).await {
            deposer.depose(ended);
            break;
        }
        let status = store.status();
        let doubt = status.lead_doubt(lead_timeout_ms);
        match (&doubt, placed_before_doubt) {
            (Some(_), None) => placed_before_doubt = Some(status.placed_records),
            // Only a record that this server has placed proves that it still leads: the lead row fences it.
            (None, Some(placed)) if status.placed_records <= placed => continue,
            (None, _) => placed_before_doubt = None,
            (Some(_), Some(_)) => {}
        }
        doubter.tell(doubt);
    }
    std::future::pending::<()>().await;
}
