import { parseStrict, type JsonValue } from '../../protocol/json.js';
import { SdkError } from '../index.js';
import { isFile, nameOf, readInput } from './input.js';
import { UsageError } from './usage-error.js';

/** A JSON document in a file, read strictly: two readers must not disagree about what it says. */
export async function readDocument(name: string): Promise<{ [key: string]: JsonValue }> {
  let value: JsonValue;
  try {
    value = parseStrict(await readInput(name));
  } catch (cause) {
    if (cause instanceof UsageError) throw cause;
    throw new UsageError(`${nameOf(name)} is not JSON: ${(cause as Error).message}`, { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new UsageError(`${nameOf(name)} is not a JSON object`);
  }
  return value;
}

/** Asks about the export in a file. What no export looks like is told with the file, and not by a member alone. */
export async function askAboutExport<T>(
  name: string,
  ask: (document: never) => Promise<T>,
): Promise<T> {
  if (!(await isFile(name))) throw new UsageError(`${name} is no proof id and no file`);
  const document = await readDocument(name);
  try {
    return await ask(document as never);
  } catch (cause) {
    if (!(cause instanceof SdkError) || cause.code !== 'invalid_input') throw cause;
    throw new UsageError(`${nameOf(name)} is not what \`svc export\` writes: ${cause.message}`, {
      cause,
    });
  }
}
