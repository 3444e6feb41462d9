import * as z from 'zod';
import type { JsonObject, OpenApiParameter } from './types.js';

export function headerParameter(
  name: string,
  description: string,
  schema: JsonObject = { type: 'string' },
): OpenApiParameter {
  return { name, in: 'header', required: false, description, schema };
}

/** Type and pattern of a string schema. */
export function plainSchema(schema: z.ZodType): JsonObject {
  const { type, pattern } = z.toJSONSchema(schema);
  return { type, pattern };
}
