//! Sessions: opened, forked, found again after restarts, and deleted.

mod fork;
mod fork_killed;
mod killed;
mod lifecycle;
mod lists;
mod model_change;
mod opening;
mod restarts;
mod resume;
mod scale;
