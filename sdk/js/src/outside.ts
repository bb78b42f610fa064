// Calls of functions that belong to the user.

/** What it throws surfaces as from any event handler, and not inside the client. */
export function outside(call: () => void): void {
  try {
    call();
  } catch (thrown) {
    queueMicrotask(() => {
      throw thrown;
    });
  }
}
