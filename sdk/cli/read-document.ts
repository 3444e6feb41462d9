import { parseStrict, type JsonValue } from '../../protocol/json.js';
import { isFile, readInput } from './input.js';
import { UsageError } from './usage-error.js';

/** A JSON document in a file, read strictly: two readers must not disagree about what it says. */
export async function readDocument(name: string): Promise<{ [key: string]: JsonValue }> {
  if (!(await isFile(name))) throw new UsageError(`${name} is no proof id and no file`);
  let value: JsonValue;
  try {
    value = parseStrict(await readInput(name));
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    throw new UsageError(`${name} is not JSON: ${(cause as Error).message}`, { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new UsageError(`${name} is not a JSON object`);
  }
  return value;
}
