/** Calls back; what comes of it is the callback's own affair, and must not become the tool's. */
export function notify<T>(callback: ((value: T) => unknown) | undefined, value: T): void {
  try {
    Promise.resolve(callback?.(value)).catch(() => undefined);
  } catch {
    // As above.
  }
}
