import { openApiDocument } from '../../openapi/document.js';
import type { OpenApiDocument } from '../../openapi/types.js';
import type { OperationSpec } from '../operation.js';
import { engineDescription } from './description.js';

export function engineOpenApi(specs: readonly OperationSpec[]): OpenApiDocument {
  return openApiDocument(specs, engineDescription());
}
