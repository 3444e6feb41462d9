/** A body exceeds its limit. */
export class BodyTooLongError extends Error {}

/**
 * Reads a response's body. Counts the bytes on arrival, because an untrusted source may state a shorter
 * length, or send without end.
 *
 * @param onChunk called after each chunk
 * @throws BodyTooLongError without reading the rest
 */
export async function readAtMost(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array> | null,
  limit: number,
  onChunk: () => void = () => undefined,
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body ?? []) {
    length += chunk.length;
    if (length > limit) throw new BodyTooLongError(`longer than ${String(limit)} bytes`);
    chunks.push(chunk);
    onChunk();
  }
  return Buffer.concat(chunks, length);
}
