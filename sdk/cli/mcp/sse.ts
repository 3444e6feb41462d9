export interface ServerSentEvent {
  data: string;
  id?: string;
  retryMs?: number;
}

const MAX_EVENT_CHARS = 64 * 2 ** 20;

/** Reads events as the HTML standard describes. A broken stream ends like a closed one. */
export async function* readEvents(
  stream: AsyncIterable<Uint8Array>,
): AsyncGenerator<ServerSentEvent> {
  const decoder = new TextDecoder();
  let rest = '';
  let data: string[] = [];
  let size = 0;
  let event: Omit<ServerSentEvent, 'data'> = {};
  try {
    for await (const chunk of stream) {
      rest += decoder.decode(chunk, { stream: true });
      // Keeps a CR at the end, which may be the first half of CRLF.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop() ?? '';
      if (rest.length + size > MAX_EVENT_CHARS) return;
      for (const line of lines) {
        const [, field = '', value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
        size += line.length;
        if (field === 'data') data.push(value);
        else if (field === 'id') event.id = value;
        else if (field === 'retry' && /^[0-9]+$/.test(value)) event.retryMs = Number(value);
        else if (line === '') {
          yield { ...event, data: data.join('\n') };
          [data, event, size] = [[], {}, 0];
        }
      }
    }
  } catch {
    // Ignored: callers detect a broken stream by its missing events.
  }
}
