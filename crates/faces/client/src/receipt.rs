//! Receipts of publishes under way: futures that resolve when the server has confirmed the publish.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use millrace_wire::{Published, PublishedBatch};
use tokio::sync::oneshot;

use crate::error::ClientError;

macro_rules! receipt {
    ($(#[$doc:meta])* $name:ident, $value:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use = "a publish is confirmed only when its receipt resolves"]
        pub struct $name(pub(crate) oneshot::Receiver<Result<$value, ClientError>>);

        impl Future for $name {
            type Output = Result<$value, ClientError>;

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Err(ClientError::Closed)))
            }
        }
    };
}

receipt!(
    /// The receipt of one event. Dropping it does not cancel the publish.
    Receipt,
    Published
);
receipt!(
    /// The receipt of a batch. Dropping it does not cancel the publish.
    BatchReceipt,
    PublishedBatch
);
