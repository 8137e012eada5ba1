//! Locks that ignore poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also when another thread panicked while it held the lock.
///
/// Use it where each critical section leaves the value consistent at every point at which it can panic. Blocks until
/// the lock is free.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poisoned_mutex_can_be_locked() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let poison = scope.spawn(|| {
                let _guard = mutex.lock();
                panic!("poisons the mutex");
            });
            assert!(poison.join().is_err());
        });
        assert!(mutex.is_poisoned());
        *lock(&mutex) += 1;
        assert_eq!(*lock(&mutex), 2);
    }
}
