//! Receipts of publishes under way: futures that resolve when the server has confirmed the publish.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrace_wire::{Published, PublishedBatch};

use crate::error::ClientError;
use crate::mailbox::{Confirmation, Mailbox};

/// An answer that will be in a slot of the mailbox.
#[derive(Debug)]
pub(crate) struct Awaited<T: Confirmation> {
    mailbox: Arc<Mailbox>,
    /// `None` once the answer was read.
    slot: Option<usize>,
    answer: PhantomData<fn() -> T>,
}

impl<T: Confirmation> Awaited<T> {
    pub(crate) fn new(mailbox: Arc<Mailbox>, slot: usize) -> Awaited<T> {
        Awaited { mailbox, slot: Some(slot), answer: PhantomData }
    }

    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<Result<T, ClientError>> {
        let Some(slot) = self.slot else { return Poll::Ready(Err(ClientError::Closed)) };
        let answer = self.mailbox.read(slot, context);
        if answer.is_ready() {
            self.slot = None;
        }
        answer
    }
}

impl<T: Confirmation> Drop for Awaited<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.mailbox.abandon::<T>(slot);
        }
    }
}

macro_rules! receipt {
    ($(#[$doc:meta])* $name:ident, $value:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use = "a publish is confirmed only when its receipt resolves"]
        pub struct $name(pub(crate) Awaited<$value>);

        impl Future for $name {
            type Output = Result<$value, ClientError>;

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                self.0.poll(context)
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
