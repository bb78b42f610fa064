//! Capabilities in other languages: child processes that speak OsMessage lines on stdin and stdout.
//!
//! A child says one line first, its manifest. Then it is handed one message at a time, like every other actor: the next
//! request after the outcome of the one before. When it ends by itself it is started again, a few times. It ends when
//! its stdin does; one that does not is killed at the end of the server, also at its sudden end if it is guarded
//! ([`Guard`]).

mod given;
mod guard;
mod hand;
mod life;
mod nursery;
mod process;
mod reload;
mod settings;
mod stamp;
mod start;
mod supervise;
mod sweep;
mod words;

pub use guard::{Guard, become_guarded};
pub use reload::{Changed, Children, ReloadError};
pub use settings::{ChildLimits, ChildSettings};
pub use start::{Child, ChildError};
