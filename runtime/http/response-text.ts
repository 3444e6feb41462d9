/**
 * Reads a response's body as UTF-8 text. Throws once it exceeds the limit, without reading the rest,
 * because its source is untrusted.
 *
 * @param limit in UTF-16 code units
 */
export async function responseText(response: Response, limit: number): Promise<string> {
  let text = '';
  for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += chunk;
    if (text.length > limit) throw new Error(`longer than ${String(limit)} characters`);
  }
  return text;
}
