/**
 * Works `inputs` several at a time, and yields the results in the order of the inputs. The next one
 * is taken when there is room for it; the first failure ends everything.
 */
export async function* inOrder<In, Out>(
  inputs: AsyncIterable<In>,
  work: (input: In) => Promise<Out>,
  inFlight: number,
): AsyncGenerator<Out, void, undefined> {
  const queue: Promise<Out>[] = [];
  for await (const input of inputs) {
    const result = work(input);
    // Whoever awaits it hears of a failure; until then it is nobody's unhandled rejection.
    result.catch(() => undefined);
    queue.push(result);
    if (queue.length >= inFlight) yield await queue.shift()!;
  }
  for (const result of queue) yield await result;
}
