//! The two macros that gather what a session runs.

/// The handlers of functions that carry `#[on_event]`, as a `Vec<Handler>`.
#[macro_export]
macro_rules! handlers {
    ($($function:path),* $(,)?) => {
        ::std::vec::Vec::<$crate::Handler>::from([$(<$function as $crate::HandlerSpec>::handler()),*])
    };
}

/// A list of schedules.
#[macro_export]
macro_rules! schedules {
    ($($schedule:expr),* $(,)?) => {
        ::std::vec![$($schedule),*]
    };
}
