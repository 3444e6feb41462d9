/** What has to be closed, in the order in which it was opened. */
export type Open = (() => Promise<unknown>)[];

/** Does work that opens things, and then closes them, the last first, whatever came of it. */
export async function closing<T>(work: (open: Open) => Promise<T>): Promise<T> {
  const open: Open = [];
  try {
    return await work(open);
  } finally {
    for (const close of open.reverse()) await close();
  }
}
