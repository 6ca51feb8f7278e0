//! Tasks that threads of this process take and run.

use std::sync::Arc;
use std::time::Duration;

use windlass_base::{Code, Result, error};

use super::{Engine, Running, State, lock};
use crate::clock;
use crate::locked::Opaque;
use crate::task::{Call, Outcome, Record, Stage, Task};

impl Engine {
    /// Takes the next task for a thread of this process, blocking up to `timeout`. `Ok(None)`: nothing yet.
    ///
    /// # Errors
    ///
    /// `Code::PoolClosed` when no task will come any more.
    pub fn take_local(&self, timeout: Duration) -> Result<Option<(Arc<Task>, Opaque)>> {
        let forked = || error!(Code::PoolClosed, "the pool's tasks are its parent's");
        let mut core = self.enter().ok_or_else(forked)?;
        loop {
            if let Some(task) = core.queue.pop() {
                let Call::Local(call) = &task.call else { continue };
                let mut slot = lock(call);
                let Some(work) = slot.take() else { continue };
                drop(slot);
                task.count_attempt();
                task.set_stage(Stage::Running);
                core.local.push(Running { task: Arc::clone(&task), since: clock::now() });
                self.may_begin(&mut core, &task);
                if core.change_waiters > 0 {
                    Self::bump(&self.change_word);
                }
                return Ok(Some((task, work)));
            }
            if !matches!(core.state, State::Open) {
                return Err(error!(Code::PoolClosed, "the pool has no more tasks"));
            }
            core.local_idle += 1;
            let (again, late) = core.wait(&self.core, &self.local_ready, timeout);
            core = again;
            core.local_idle -= 1;
            if late && core.queue.is_empty() {
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
        let Some(mut core) = self.enter() else { return };
        core.local.retain(|running| !Arc::ptr_eq(&running.task, task));
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
