//! Tasks that threads of this process take and run.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use windlass_base::{Code, Result, error};

use super::{Engine, State, lock};
use crate::task::{Call, Opaque, Outcome, Record, Stage, Task};

impl Engine {
    /// Takes the next task for a thread of this process, blocking up to `timeout`. `Ok(None)`: nothing yet.
    ///
    /// # Errors
    ///
    /// `Code::PoolClosed` when no task will come any more.
    pub fn take_local(&self, timeout: Duration) -> Result<Option<(Arc<Task>, Opaque)>> {
        let mut core = self.lock();
        loop {
            if let Some(task) = core.queue.pop() {
                let Call::Local(call) = &task.call else { continue };
                let mut slot = lock(call);
                let Some(work) = slot.take() else { continue };
                drop(slot);
                task.count_attempt();
                task.set_stage(Stage::Running);
                core.local_running += 1;
                if core.change_waiters > 0 {
                    Self::bump(&self.change_word);
                }
                return Ok(Some((task, work)));
            }
            if !matches!(core.state, State::Open) {
                return Err(error!(Code::PoolClosed, "the pool has no more tasks"));
            }
            core.local_idle += 1;
            let (again, result) =
                self.local_ready.wait_timeout(core, timeout).unwrap_or_else(PoisonError::into_inner);
            core = again;
            core.local_idle -= 1;
            if result.timed_out() && core.queue.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Ends a local task. `again` gives the call back, for a retry.
    pub fn finish_local(
        &self,
        task: &Arc<Task>,
        value: Opaque,
        raised: bool,
        busy_ns: u64,
        again: Option<Opaque>,
    ) {
        let mut core = self.lock();
        core.local_running = core.local_running.saturating_sub(1);
        let pid = windlass_os::process::current_pid();
        let record = Record { pid, busy_ns, total_ns: 0 };
        let outcome = Outcome::Local { value, raised };
        match (raised, again, &task.call) {
            (true, Some(work), Call::Local(slot)) => {
                *lock(slot) = Some(work);
                self.retry_or_finish(&mut core, task, outcome, record);
            }
            _ => self.finish(&mut core, task, outcome, record),
        }
        self.check_end(&mut core);
    }
}
