//! The data folder and its journal: full, moved, shared, damaged, and cleared up.

mod database_moved;
mod disk_quotas;
mod journal;
mod maintenance;
mod shared_data_dir;
