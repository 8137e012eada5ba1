//! The items of a pool, and the factory that creates them.

use std::fmt;

use conjure_base::Deadline;
use conjure_sandbox::SandboxError;
use futures_util::future::BoxFuture;

/// An item that a pool creates before a caller needs it.
pub trait PoolItem: Send + 'static {
    /// Whether it has not ended, as far as is known.
    fn is_live(&self) -> bool;

    /// Resolves when it has ended by itself, also after it was claimed.
    fn ended(&self) -> BoxFuture<'static, SandboxError>;

    /// Ends it, and returns when nothing of it is left. The implementation must limit the time.
    fn retire(self) -> impl Future<Output = ()> + Send + 'static;
}

/// Creates the items of one pool.
pub trait PoolItemFactory: Send + Sync + fmt::Debug + 'static {
    /// The type of the items.
    type Item: PoolItem;

    /// Creates an item, and returns when it is ready to be claimed. Dropping the future removes what was created so
    /// far.
    ///
    /// # Errors
    /// Why it cannot be created; `Unsupported` if it never can. Nothing is left of it then.
    fn create(&self, deadline: Deadline) -> BoxFuture<'_, Result<Self::Item, SandboxError>>;
}
