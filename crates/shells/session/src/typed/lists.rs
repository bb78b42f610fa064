//! The two macros that list what a session runs.

/// Makes a `Vec<Handler>` of functions with `#[on_event]`.
#[macro_export]
macro_rules! handlers {
    ($($function:path),* $(,)?) => {
        ::std::vec::Vec::<$crate::Handler>::from([$(<$function as $crate::HandlerSpec>::handler()),*])
    };
}

/// Makes a list of schedules.
#[macro_export]
macro_rules! schedules {
    ($($schedule:expr),* $(,)?) => {
        ::std::vec![$($schedule),*]
    };
}
