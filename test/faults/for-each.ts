const AT_ONCE = 16;

/** Calls for each, some at a time. */
export async function forEach<T>(
  all: readonly T[],
  call: (one: T) => Promise<void>,
): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    for (let one = all[next++]; one !== undefined; one = all[next++]) await call(one);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}
