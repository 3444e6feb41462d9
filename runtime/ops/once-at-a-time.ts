/** Whoever asks while an answer is under way is given that one. */
export function onceAtATime<T>(ask: () => Promise<T>): () => Promise<T> {
  let asking: Promise<T> | null = null;
  return () =>
    (asking ??= ask().finally(() => {
      asking = null;
    }));
}
