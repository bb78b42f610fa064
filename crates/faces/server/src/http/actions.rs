//! Acts of people on durable handlers, schedules and delayed events: built and checked by `millrace-admin`, committed
//! through the broker's group commit, audited.

use std::sync::Arc;

use axum::http::StatusCode;
use millrace_admin::{Admin, AdminCommits, AdminError, ChangeError};
use millrace_broker::{BatchWriter, RowWriteError};
use millrace_bus::BusError;
use millrace_model::{Batch, Timestamp};
use millrace_store::{FailureCause, Store, StoreError};
use millrace_wire::ErrorCode;
use tokio::runtime::Handle;

use crate::app::App;
use crate::moved::Moved;
use crate::observe::to_its_end;
use crate::refusal::Refusal;

/// Commits through the broker. Blocks, so it is used on threads that may.
struct ThroughBroker {
    writer: BatchWriter,
    runtime: Handle,
}

impl AdminCommits for ThroughBroker {
    fn commit(&self, batch: Batch) -> Result<bool, StoreError> {
        self.runtime.block_on(self.writer.write(batch)).map_err(|error| match error {
            RowWriteError::NoSpace(why) => StoreError::NoSpace(why.into()),
            RowWriteError::StorageFailed(why) => StoreError::Poisoned(why.into()),
            RowWriteError::TooLarge { bytes, max } => StoreError::TooLarge { bytes, max },
            error @ RowWriteError::ShuttingDown => StoreError::Closed(FailureCause::of(error)),
            // A batch of this kind meets none of the rules of row writers.
            error => StoreError::Unreadable(FailureCause::of(error)),
        })
    }
}

impl App {
    /// Carries out an act and records it, also if the caller closes its connection meanwhile. `act` runs on a thread that
    /// may block, and gets the store for what it must look up itself, and the time.
    pub(crate) async fn act<T: Send + 'static>(
        self: &Arc<App>,
        act: impl FnOnce(&Admin, &dyn Store, Timestamp) -> Result<T, ChangeError> + Send + 'static,
        record: impl FnOnce(&App, &T) + Send + 'static,
    ) -> Result<T, Refusal> {
        let app = self.clone();
        to_its_end(async move {
            let done = app.act_here(act).await?;
            record(&app, &done);
            Ok(done)
        })
        .await
    }

    /// The same in the caller's task, without a record.
    async fn act_here<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Admin, &dyn Store, Timestamp) -> Result<T, ChangeError> + Send + 'static,
    ) -> Result<T, Refusal> {
        if let Some(doubt) = self.edge.doubt.reason() {
            return Err(Moved::to(None).refusal_because(&doubt));
        }
        let commits = ThroughBroker { writer: self.actions.clone(), runtime: Handle::current() };
        let (store, now) = (self.store.clone(), self.broker.clock().now().wall);
        let admin = Admin::committing(store, Arc::new(commits));
        let acted = self.read(move |store| Ok(act(&admin, store, now)));
        let acted = tokio::select! {
            biased;
            acted = acted => acted?,
            () = self.edge.doubt.begun() => {
                let doubt = self.edge.doubt.reason().unwrap_or_default();
                let detail = format!("{doubt}; whether this was done is not known: look again, and then send it again");
                return Err(Refusal::new(ErrorCode::StorageFailed, detail));
            }
        };
        acted.map_err(|error| self.not_changed(error))
    }

    fn not_changed(&self, error: ChangeError) -> Refusal {
        match error {
            ChangeError::Read(AdminError::Store(StoreError::NoSpace(why))) => {
                self.refusal(&BusError::NoSpace(why.to_string()))
            }
            ChangeError::Read(AdminError::Store(StoreError::Closed(_))) => {
                self.refusal(&BusError::ShuttingDown)
            }
            ChangeError::Read(error) => self.refusal(&BusError::StorageFailed(error.to_string())),
            ChangeError::NoEvent(_)
            | ChangeError::NoDeadLetter(_)
            | ChangeError::NoHandler(_)
            | ChangeError::NoSchedule(_)
            | ChangeError::NotDelayed(_) => not_found(error.to_string()),
            ChangeError::Busy
            | ChangeError::Replay(_)
            | ChangeError::Held { .. }
            | ChangeError::TopicGone(_) => {
                Refusal::new(ErrorCode::BadFrame, error.to_string()).status(StatusCode::CONFLICT)
            }
            ChangeError::Name(_) => Refusal::new(ErrorCode::BadFrame, error.to_string()),
        }
    }
}

pub(crate) fn not_found(detail: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::NOT_FOUND)
}
