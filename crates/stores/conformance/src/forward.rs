//! For tests that wrap a store to make one of its calls fail: everything else is forwarded.

/// Inside `impl Store for Wrapper`: forwards reads, the watch and the right to serve to the field of that name.
/// `commit` and `maintain`, which tests make fail, are written by hand.
#[macro_export]
macro_rules! forward_reads_to {
    ($field:ident) => {
        fn read(
            &self,
            stream: &$crate::port::Stream,
            from: $crate::port::Offset,
            limit: $crate::port::ReadLimit,
        ) -> Result<$crate::port::Page, $crate::port::StoreError> {
            self.$field.read(stream, from, limit)
        }
        $crate::forward_rest_to!($field);
    };
}

/// Like [`forward_reads_to`], for a wrapper that has a `read` of its own.
#[macro_export]
macro_rules! forward_rest_to {
    ($field:ident) => {
        fn seek(
            &self,
            stream: &$crate::port::Stream,
            ts: $crate::port::Timestamp,
        ) -> Result<$crate::port::Offset, $crate::port::StoreError> {
            self.$field.seek(stream, ts)
        }
        fn retention_start(
            &self,
            stream: &$crate::port::Stream,
            rule: $crate::port::Retention,
        ) -> Result<$crate::port::Offset, $crate::port::StoreError> {
            self.$field.retention_start(stream, rule)
        }
        fn scan(
            &self,
            space: $crate::port::Space,
            range: &$crate::port::KeyRange,
            rows_max: usize,
        ) -> Result<Vec<$crate::port::Row>, $crate::port::StoreError> {
            self.$field.scan(space, range, rows_max)
        }
        fn streams(&self) -> Result<Vec<$crate::port::StreamBounds>, $crate::port::StoreError> {
            self.$field.streams()
        }
        fn watch(
            &self,
            after: $crate::port::CommitNumber,
            commits_max: usize,
        ) -> Result<$crate::port::Changes, $crate::port::StoreError> {
            self.$field.watch(after, commits_max)
        }
        fn wake_on_news(&self, wake: &$crate::port::NewsWake) -> Result<bool, $crate::port::StoreError> {
            self.$field.wake_on_news(wake)
        }
        fn other_handles(&self) -> $crate::port::OtherHandles {
            self.$field.other_handles()
        }
        fn claim_serving(&self) -> Result<(), $crate::port::StoreError> {
            self.$field.claim_serving()
        }
        fn is_served_elsewhere(&self) -> bool {
            self.$field.is_served_elsewhere()
        }
    };
}
