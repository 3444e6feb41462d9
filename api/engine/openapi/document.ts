import { openApiDocument } from '../../openapi/document.js';
import type { OpenApiDocument } from '../../openapi/types.js';
import type { OperationSpec } from '../operation.js';
import { engineDescription } from './description.js';

/** OpenAPI 3.1 of operations of the engine. */
export function engineOpenApi(specs: readonly OperationSpec[]): OpenApiDocument {
  return openApiDocument(specs, engineDescription());
}
