import type * as z from 'zod';
import { pointerStep, parseStrict, type JsonValue } from '../../protocol/json.js';
import { openSchema } from '../../protocol/schemas/open-schema.js';
import { SdkError } from '../errors.js';
import type { Answer } from './attempt.js';

/**
 * The document of an answer, as it was sent: strict JSON with every member of `schema`. Members that
 * the service added since are left in it, except in `FIXED_SCHEMAS`, which have none. Everything else
 * is `unexpected_response`.
 */
export function readDocument<T>(answer: Answer, schema: z.ZodType<T>): T {
  requireType(answer, 'application/json');
  let value: JsonValue;
  try {
    value = parseStrict(answer.bytes);
  } catch (cause) {
    throw unexpected(answer, 'the answer is not JSON with one meaning', cause);
  }
  const result = openSchema(schema).safeParse(value);
  if (!result.success) {
    const where = result.error.issues[0]?.path.map(String).map(pointerStep).join('') ?? '';
    throw unexpected(answer, `the answer is another document, at ${where || '/'}`, result.error);
  }
  return value as T;
}

/** Media types compare without case and without parameters. */
export function requireType(answer: Answer, type: string): void {
  const sent = (answer.headers.get('content-type') ?? '').split(';')[0]?.trim().toLowerCase();
  if (sent !== type) throw unexpected(answer, `the answer is not ${type}`);
}

export function unexpected({ status }: Answer, message: string, cause?: unknown): SdkError {
  return new SdkError('unexpected_response', message, {
    status,
    ...(cause !== undefined && { cause }),
  });
}

/** What is to be sent, as its schema has it; `invalid_input` with a pointer, and nothing is sent. */
export function checkedInput<T>(schema: z.ZodType<T>, input: unknown): T {
  const result = schema.safeParse(input);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const path = issue === undefined ? [] : [...issue.path];
  if (issue?.code === 'unrecognized_keys') path.push(issue.keys[0] ?? '');
  const pointer = path.map(String).map(pointerStep).join('');
  throw new SdkError('invalid_input', `${pointer || '/'}: ${issue?.message ?? 'is not valid'}`, {
    pointer,
    cause: result.error,
  });
}
