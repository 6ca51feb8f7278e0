//! What [`FixedExecutor`](crate::FixedExecutor) and [`DynamicExecutor`](crate::DynamicExecutor) share: each is a pool
//! of workers, and shuts it down when it is dropped.

/// Makes an executor of a struct around an `Arc<WorkerPool>`.
macro_rules! executor_of_workers {
    ($name:ident) => {
        impl $crate::executor::Executor for $name {
            fn execute(&self, job: $crate::job::Job) -> Result<(), $crate::rejected::Rejected> {
                self.0.execute(job)
            }

            fn execute_after(
                &self,
                delay: std::time::Duration,
                job: $crate::job::Job,
            ) -> Result<$crate::delayed::Delayed, $crate::rejected::Rejected> {
                self.0.execute_after(delay, job)
            }

            fn shutdown(&self) {
                self.0.shutdown();
            }

            fn join(&self, deadline: Option<std::time::Instant>) -> $crate::report::ShutdownReport {
                self.0.join(deadline)
            }

            fn statistics(&self) -> $crate::statistics::Statistics {
                self.0.statistics()
            }

            fn is_current(&self) -> bool {
                self.0.is_current()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                self.0.shutdown();
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.0.statistics()).finish()
            }
        }
    };
}
pub(crate) use executor_of_workers;
